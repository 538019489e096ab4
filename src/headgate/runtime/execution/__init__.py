"""The executor: which stages run, in which threads, with which share of Spark, and what a failure stops."""
