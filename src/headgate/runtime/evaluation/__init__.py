"""The rules at work: one flow's changes computed on Spark and Arrow."""
