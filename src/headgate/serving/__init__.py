"""PostgreSQL as a second platform for results: tables are shipped there job by job, and queries that translate run there."""
