"""Rows as a table of text, cut to the terminal's width. Column widths come from the first rows; the others follow as they come.

A table of rich needs all rows at once, and twenty times as long for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from headgate.cli.texts import shown
from headgate.measures import count_text

MEASURED_ROWS = 1000
_LEAST = 6
"""A column is not made narrower than this; columns that then have no room are left out."""
_GAP = "  "


def table_lines(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[bool] = (), width: int | None = None
) -> Iterator[str]:
    """Heading, rule and rows; `right` says which columns are aligned so. Without a width nothing is cut."""
    texts = ([shown(value) for value in row] for row in rows)
    first = list(itertools.islice(texts, MEASURED_ROWS))
    natural = [max(cell_len(row[place]) for row in [names, *first]) for place in range(len(names))]
    widths = natural if width is None else fitted(natural, width)
    alignment = [*right, *([False] * len(widths))][: len(widths)]

    def cell(text: str, size: int, to_right: bool) -> str:
        blanks = size - cell_len(text)
        if blanks < 0 and width is not None:
            return f"{set_cell_size(text, size - 1)}…"
        return " " * blanks + text if to_right else text + " " * blanks

    def line(cells: Sequence[str]) -> str:
        return _GAP.join(map(cell, cells, widths, alignment)).rstrip()

    yield line(names)
    yield _GAP.join("─" * size for size in widths)
    count = 0
    for row in itertools.chain(first, texts):
        count += 1
        yield line(row)
    hidden = names[len(widths) :]
    beside = f", {count_text(len(hidden), 'column')} not shown: {', '.join(hidden)}" if hidden else ""
    yield f"({count_text(count, 'row')}{beside})"


def fitted(widths: Sequence[int], width: int) -> list[int]:
    """The widths, the widest made narrower until all fit; columns at the end that cannot fit are left out."""
    widths = list(widths)
    while len(widths) > 1 and sum(min(size, _LEAST) for size in widths) + len(_GAP) * (len(widths) - 1) > width:
        widths.pop()
    room = width - len(_GAP) * (len(widths) - 1)
    shares = [0] * len(widths)
    # The narrowest first: what it leaves of its share goes to the wider ones.
    for done, place in enumerate(sorted(range(len(widths)), key=widths.__getitem__)):
        shares[place] = min(widths[place], max(room // (len(widths) - done), 1))
        room -= shares[place]
    return shares
