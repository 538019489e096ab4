"""Files as a source: Parquet, CSV and JSON lines."""
