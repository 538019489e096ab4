"""Stages: what brings one table from its job to a later one; replicas, dimensions, views, procedures."""
