"""Flows: from statements to plans and running stages, and the set of flows that a warehouse has."""
