"""Rows by key in memory, with indexes and greatest values kept up to date, and a list of changes to undo."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Row = tuple[Any, ...]
Key = Any
"""The value of the key column, or a tuple of those of several."""

UNKNOWN: Row = ("unknown",)
"""In the place of a row: whether there is one with this key is not known."""


class KnownRows:
    """`whole`: a key that is not here has no row. Otherwise None says so, and others may have one."""

    def __init__(self, rows: Iterable[tuple[Key, Row]], *, whole: bool) -> None:
        self.whole = whole
        self._rows: dict[Key, Row | None] = dict(rows)
        self._undo: list[tuple[Key, Row | None]] = []
        self._indexes: dict[tuple[int, ...], dict[Row, dict[Key, None]]] = {}
        self._greatest: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Key) -> Row | None:
        """The row, None if there is none, or `UNKNOWN`."""
        row = self._rows.get(key, UNKNOWN)
        return None if row is UNKNOWN and self.whole else row

    def rows(self) -> Iterator[Row]:
        """All rows that are here."""
        return (row for row in self._rows.values() if row is not None)

    def set(self, key: Key, row: Row | None) -> None:
        """Puts a row in the place of what the key had; None removes that."""
        old = self._rows.get(key, UNKNOWN)
        self._undo.append((key, old))
        self._replace(key, old, row)

    def add(self, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """Adds rows of keys that have none."""
        if self._indexes or self._greatest:
            for key, row in zip(keys, rows, strict=True):
                self.set(key, row)
        else:
            self._rows.update(zip(keys, rows, strict=True))
            self._undo.extend(zip(keys, itertools.repeat(UNKNOWN)))

    def learn(self, key: Key, row: Row | None) -> None:
        """Remembers what the warehouse has."""
        self._rows[key] = row

    def touch(self, key: Key) -> None:
        """Makes a key the last to be forgotten."""
        self._rows[key] = self._rows.pop(key)

    def forget(self, limit: int) -> None:
        """Forgets the keys that were not used for longest, unless there are changes to undo."""
        excess = len(self._rows) - limit
        if excess > 0 and not self._undo:
            if self.whole:
                self.whole = False
                self._indexes.clear()
            for key in list(itertools.islice(self._rows, excess)):
                del self._rows[key]

    def found(self, places: tuple[int, ...], choices: Sequence[Sequence[Any]]) -> list[Row]:
        """The rows whose columns at these places have one of the values each, by an index that is made when first needed."""
        index = self._indexes.get(places)
        if index is None:
            index = self._indexes[places] = {}
            for key, row in self._rows.items():
                if row is not None:
                    index.setdefault(_picked(row, places), {})[key] = None
        keys = itertools.chain.from_iterable(index.get(values, ()) for values in itertools.product(*choices))
        return [row for key in keys if (row := self._rows[key]) is not None]

    def greatest(self, place: int) -> Any:
        """The greatest value of a column; `UNKNOWN` when not all rows are here and `learn_greatest` did not tell."""
        if place not in self._greatest:
            if not self.whole:
                return UNKNOWN
            self._greatest[place] = max((row[place] for row in self.rows() if row[place] is not None), default=None)
        return self._greatest[place]

    def learn_greatest(self, place: int, value: Any) -> None:
        """Remembers what the warehouse says."""
        self._greatest[place] = value

    @property
    def changes(self) -> int:
        """How many changes can be undone."""
        return len(self._undo)

    def changed(self) -> dict[Key, Row | None]:
        """The rows of the keys that changed."""
        return {key: self._rows.get(key) for key, _ in self._undo}

    def keep_changes(self) -> None:
        """They cannot be undone any more."""
        self._undo.clear()

    def undo(self, changes: int) -> None:
        """Undoes all but so many changes."""
        while len(self._undo) > changes:
            key, old = self._undo.pop()
            self._replace(key, self._rows.get(key, UNKNOWN), old)

    def _replace(self, key: Key, old: Row | None, new: Row | None) -> None:
        gone = None if old is UNKNOWN else old
        come = None if new is UNKNOWN else new
        for places, index in self._indexes.items():
            if gone is not None:
                values = _picked(gone, places)
                del index[values][key]
                if not index[values]:
                    del index[values]
            if come is not None:
                index.setdefault(_picked(come, places), {})[key] = None
        for place, greatest in list(self._greatest.items()):
            if gone is not None and gone[place] == greatest:
                del self._greatest[place]
            elif come is not None and come[place] is not None and (greatest is None or come[place] > greatest):
                self._greatest[place] = come[place]
        if new is UNKNOWN or (new is None and self.whole):
            self._rows.pop(key, None)
        else:
            self._rows[key] = new


def matches(row: Row, places: tuple[int, ...], choices: Sequence[Sequence[Any]]) -> bool:
    """Whether the columns at these places have one of the values each."""
    return all(row[place] in values for place, values in zip(places, choices, strict=True))


def _picked(row: Row, places: tuple[int, ...]) -> Row:
    return tuple([row[place] for place in places])
