"""Rows in the driver, as Arrow columns: chains of a key's rows, versions, numbered copies, Spark's hash."""
