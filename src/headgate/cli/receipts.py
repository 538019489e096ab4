"""A receipt on a terminal."""

from __future__ import annotations

from rich.table import Table

from headgate.cli.terminal import columns
from headgate.receipts import Body, receipt_lines


def receipt_table(receipt: Body) -> Table:
    """One row per thing to know."""
    table = columns()
    for title, text in receipt_lines(receipt):
        table.add_row(title, text)
    return table
