"""SQL to operator graphs: statements, names and the lowering of SELECT. Pure: no Spark, no files."""
