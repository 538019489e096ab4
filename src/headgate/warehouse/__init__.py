"""Tables out: versioned Delta tables under one ledger.

spec -> storage -> statistics, index -> store        one Delta table: files, ranges, commits
codes -> changes -> overlay -> images                what later jobs changed, in memory or in segment files
lookup, frames, folding -> versioned                 snapshots at any retained job
lock -> ledger                                       which version of every table counts
"""
