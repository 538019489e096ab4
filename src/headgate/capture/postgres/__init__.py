"""Changes from PostgreSQL, by log, by trigger or by timestamp."""
