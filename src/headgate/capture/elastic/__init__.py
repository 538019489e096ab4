"""The elastic queue: a stream log whose rows lie in partitions that split and merge with the load."""
