"""The one Spark of a warehouse: its sessions and pools, temporary views, scratch files, and what is tried again."""
