"""Upkeep: folding overlays into Delta tables, arrangements, letting go of what nobody can ask for."""
