"""Reading: pinned snapshots, answers, and reads that several answers share."""
