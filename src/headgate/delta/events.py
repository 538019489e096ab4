"""The columns that a captured event has besides its table's own, and what happened."""

from __future__ import annotations

OP = "__op"
UNCHANGED = "__unchanged"
SEQUENCE = "__sequence"

DELETE, UPSERT, TRUNCATE, OBSERVED = 0, 1, 2, 3
