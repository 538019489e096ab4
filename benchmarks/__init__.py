"""Benchmarks: each compares headgate with what a user would choose instead, in one run, and prints ratios."""
