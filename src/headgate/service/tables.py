"""The tables of a warehouse as a client sees them: columns, key, what they derive from, and how fresh they are."""

from __future__ import annotations

from typing import Any

from headgate.scheduling.warehouse import Warehouse
from headgate.service.plain import to_plain


def tables_with_freshness(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Every table that SQL can name."""
    freshness = {status.name: to_plain(status) for status in warehouse.status.tables}
    return [
        {**to_plain(table), "freshness": {name: value for name, value in found.items() if name != "name"}}
        for table in warehouse.describe()
        # One that was declared a moment ago has no status yet.
        if (found := freshness.get(table.name)) is not None
    ]
