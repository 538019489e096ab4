"""Workload-aware capture: how often a source is asked for changes, and by how many workers."""
