"""The warehouse over PostgreSQL's protocol: psql, BI tools, SQLAlchemy and dbt connect as to any PostgreSQL."""
