"""`pg_catalog` and `information_schema`: PostgreSQL's own relations, filled with what the warehouse has, asked by DuckDB."""
