"""The workload scheduler: what a query needs, and which cuts and jobs give it that."""
