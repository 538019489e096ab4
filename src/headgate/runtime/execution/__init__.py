"""Executors: when several stages run, in which threads, and what a failure stops."""
