"""The rows of a producer's table, in its own memory: what it committed and what it has not committed yet.

The producer is the only one who writes to the table, so what it read once stays true with its own writes added. A cache is

    asleep   nothing is in memory; of a single integer key the greatest is known, so that greater ones need no look
    whole    every row is in memory, with indexes by whatever columns were asked for
    partial  the table is too large: some keys are in memory, the warehouse is asked for others

It wakes up when it is asked something, or when a key comes that is not greater; only then the open rows are read back into it.
A table without a key is cached by running numbers, once it is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter, lt
from typing import Any

import pyarrow as pa

from headgate.capture.shape import Shape
from headgate.delta.events import DELETE, OP
from headgate.producing.channel import Channel
from headgate.producing.committed import CommittedRows
from headgate.producing.dbapi import NotSupportedError
from headgate.producing.known import UNKNOWN, Key, KnownRows, Row, matches

_BELOW_ALL = -(1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CacheMark:
    """A moment to come back to; `changes` is None while the cache was asleep."""

    changes: int | None
    top: int | None


class Cache:
    """One table's rows; `open_rows` reads the event rows of the open transaction back."""

    def __init__(
        self, channel: Channel, table: str, shape: Shape, limit: int, open_rows: Callable[[], list[pa.RecordBatch]]
    ) -> None:
        self._committed = CommittedRows(channel, table, shape)
        self._shape = shape
        self._limit = limit
        self._open_rows = open_rows
        self._key_places = tuple(shape.columns.index(column) for column in shape.key)
        numbers = itertools.count()
        self.key_of: Callable[[Row], Key] = itemgetter(*self._key_places) if shape.key else lambda row: next(numbers)
        self._counts_up = len(shape.key) == 1 and pa.types.is_integer(shape.fields[self._key_places[0]].type)
        self._known: KnownRows | None = None
        self._top: int | None = None
        self._committed_top: int | None = None
        self._is_too_large = False

    def insert(self, row: Row) -> bool:
        """Adds a row; False, and nothing happens, when its key is there already."""
        if self._known is None:
            if not self._key_places:
                return True
            key = self.key_of(row)
            if self._passes(key, key):
                return True
            self._wake()
        return self._add_one(row)

    def insert_rows(self, rows: Sequence[Row]) -> int | None:
        """Adds rows; gives the place of the first whose key is there already, and then nothing has happened."""
        if self._known is None:
            if not self._key_places:
                return None
            keys = list(map(self.key_of, rows))
            if self._counts_up and all(map(lt, keys, keys[1:])) and self._passes(keys[0], keys[-1]):
                return None
        return self._add(rows)

    def insert_columns(self, columns: Sequence[pa.Array]) -> int | None:
        """Like `insert_rows`, for rows as the table's columns."""
        if self._known is None:
            if not self._key_places:
                return None
            if self._counts_up:
                keys = columns[self._key_places[0]].to_numpy()
                if bool((keys[1:] > keys[:-1]).all()) and self._passes(int(keys[0]), int(keys[-1])):
                    return None
        return self._add(list(zip(*(column.to_pylist() for column in columns), strict=True)))

    def _add_one(self, row: Row) -> bool:
        known = self._wake()
        key = self.key_of(row)
        if self._key_places and self._row(key) is not None:
            return False
        known.set(key, row)
        if self._counts_up:
            self._raise_top(key)
        return True

    def _add(self, rows: Sequence[Row]) -> int | None:
        known = self._wake()
        keys = list(map(self.key_of, rows))
        if self._key_places:
            if (place := self._first_known(keys)) is not None:
                return place
            if self._counts_up:
                self._raise_top(max(keys))
        known.add(keys, rows)
        return None

    def replace(self, old: Row, new: Row | None) -> None:
        """Puts a row in the place of one that was found, or removes that."""
        known = self._wake()
        key = self.key_of(old)
        if known.get(key) is UNKNOWN:
            known.learn(key, old)
        if new is None:
            known.set(key, None)
            return
        if self.key_of(new) != key:
            known.set(key, None)
        known.set(self.key_of(new), new)
        if self._counts_up:
            self._raise_top(self.key_of(new))

    def mark(self) -> CacheMark:
        """The present moment."""
        return CacheMark(None if self._known is None else self._known.changes, self._top)

    def back_to(self, mark: CacheMark) -> None:
        """Undoes what happened since."""
        self._top = mark.top
        if mark.changes is None:
            # Open rows from before the mark are in the transaction: they are read again when it wakes up.
            self._known = None
        elif self._known is not None:
            self._known.undo(mark.changes)

    def rolled_back(self) -> None:
        """Undoes what happened since the last commit."""
        self.back_to(CacheMark(None if self._known is None else 0, self._committed_top))

    def committed(self) -> None:
        """All changes are the warehouse's now; what is too much to keep is forgotten."""
        self._committed_top = self._top
        if self._known is None:
            return
        self._known.keep_changes()
        if len(self._known) > self._limit:
            if self._shape.key:
                if self._counts_up and self._top is None:
                    self._top = self._committed_top = self._known.greatest(self._key_places[0])
                self._known.forget(self._limit)
            else:
                self._known, self._is_too_large = None, True

    def has(self, key: Key) -> bool:
        """Whether there is a row with this key."""
        self._wake()
        return self._row(key) is not None

    def find(self, places: tuple[int, ...], choices: Sequence[Sequence[Any]]) -> list[Row]:
        """The rows whose columns at these places have one of the values each; None stands for NULL."""
        known = self._wake_to_read()
        if known is None:
            return self._search(places, choices)
        if self._key_places and all(place in places for place in self._key_places):
            by_place = dict(zip(places, choices, strict=True))
            wanted = itertools.product(*(by_place[place] for place in self._key_places))
            keys = [key[0] for key in wanted] if len(self._key_places) == 1 else list(wanted)
            if len(keys) > 1:
                self._fetch(key for key in keys if known.get(key) is UNKNOWN)
            rows = (self._row(key) for key in dict.fromkeys(keys))
            return [row for row in rows if row is not None and matches(row, places, choices)]
        if not known.whole:
            return self._search(places, choices)
        return known.found(places, choices) if places else list(known.rows())

    def greatest(self, place: int) -> Any:
        """The greatest value of a column, None without any."""
        if self._known is None and self._counts_up and place == self._key_places[0]:
            top = self._known_top()
            return None if top == _BELOW_ALL else top
        known = self._wake_to_read()
        if known is None:
            return self._committed.greatest(self._shape.columns[place])
        if known.greatest(place) is UNKNOWN:
            if known.changes:
                raise NotSupportedError(
                    f"the greatest {self._shape.columns[place]} of {self._shape.name} is not known while the open "
                    "transaction changes rows, because the table is too large to be held in memory",
                    hint="commit first, or connect with a larger cache_rows",
                )
            known.learn_greatest(place, self._committed.greatest(self._shape.columns[place]))
        return known.greatest(place)

    def _passes(self, first: Key, last: Key) -> bool:
        """While asleep: whether growing keys need no look, because they are greater than all before."""
        if not self._counts_up or first <= self._known_top():
            return False
        self._top = last
        return True

    def _known_top(self) -> int:
        """No key is greater than this one; only for single integers."""
        if self._top is None:
            count = self._committed.count()
            found = self._committed.greatest(self._shape.key[0], small=count <= self._limit) if count else None
            self._top = self._committed_top = _BELOW_ALL if found is None else int(found)
        return self._top

    def _raise_top(self, key: Key) -> None:
        if self._top is not None and key > self._top:
            self._top = key

    def _wake_to_read(self) -> KnownRows | None:
        """Wakes up, except for a large table without a key: its rows are always asked for."""
        if self._known is not None:
            return self._known
        if not self._shape.key:
            self._is_too_large = self._is_too_large or self._committed.count() > self._limit
            if self._is_too_large:
                if self._open_rows():
                    raise NotSupportedError(
                        f"{self._shape.name} cannot be read while the open transaction has rows for it, because it has "
                        "no key and is too large to be held in memory",
                        hint="commit first, give the table a key, or connect with a larger cache_rows",
                    )
                return None
        return self._wake()

    def _wake(self) -> KnownRows:
        if self._known is not None:
            return self._known
        whole = self._committed.count() <= self._limit
        rows = self._committed.all() if whole else []
        if self._counts_up and not whole:
            self._known_top()
        known = KnownRows(((self.key_of(row), row) for row in rows), whole=whole)
        for batch in self._open_rows():
            ops = batch.column(OP).to_pylist()
            for op, row in zip(ops, self._committed.rows_of(batch), strict=True):
                known.set(self.key_of(row), None if op == DELETE else row)
        self._known = known
        return known

    def _row(self, key: Key) -> Row | None:
        """The row of a key; only while awake."""
        known = self._wake()
        row = known.get(key)
        if row is UNKNOWN:
            if self._top is not None and key > self._top:
                return None
            self._fetch([key])
            row = known.get(key)
            known.forget(self._limit)
        elif not known.whole:
            known.touch(key)
        return row

    def _first_known(self, keys: Sequence[Key]) -> int | None:
        """The place of the first key that has a row, or comes twice."""
        known = self._wake()
        if not known.whole:
            top = self._top
            self._fetch(key for key in keys if known.get(key) is UNKNOWN and (top is None or key <= top))
        before: set[Key] = set()
        for place, key in enumerate(keys):
            row = known.get(key)
            if key in before or (row is not None and row is not UNKNOWN):
                return place
            before.add(key)
        return None

    def _fetch(self, keys: Iterable[Key]) -> None:
        """Asks the warehouse for the rows of keys."""
        wanted = list(dict.fromkeys(keys))
        if wanted:
            known = self._wake()
            by_key = {self.key_of(row): row for row in self._committed.with_keys(wanted)}
            for key in wanted:
                known.learn(key, by_key.get(key))

    def _search(self, places: tuple[int, ...], choices: Sequence[Sequence[Any]]) -> list[Row]:
        """Asks the warehouse for rows, and puts the open changes in their place."""
        changed = {} if self._known is None else self._known.changed()
        rows = [row for row in self._committed.where(places, choices) if not changed or self.key_of(row) not in changed]
        return rows + [row for row in changed.values() if row is not None and matches(row, places, choices)]
