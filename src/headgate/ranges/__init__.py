"""Key ranges of tables: which values there are, how a column is cut, which ranges a predicate reads. Pure."""
