"""Stages, their execution on Spark, and the warehouse that a user opens."""
