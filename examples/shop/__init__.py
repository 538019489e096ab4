"""The shop of `make demo`."""
