"""What a warehouse stores and records: the chain of jobs, the ledger's records, the catalog, tables with their arrangements."""
