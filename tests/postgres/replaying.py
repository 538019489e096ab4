"""A stream log played back in plain Python: what its tables hold after all transactions, or after each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow.parquet as pq

from headgate.capture.locallog import LocalLog
from headgate.delta.changes import COMMIT_AT, POSITION
from headgate.delta.events import DELETE, OP, SEQUENCE, TRUNCATE, UNCHANGED

Row = dict[str, object]
Rows = dict[tuple[object, ...], Row]

_OWN = {OP, UNCHANGED, SEQUENCE, POSITION, COMMIT_AT}


def events_of(log: LocalLog, table: str, after: int = 0) -> list[Row]:
    """All events of a table, in order."""
    events = log.read(table, max(after, log.trimmed), log.end)
    rows: list[Row] = [] if events.table is None else events.table.to_pylist()
    for file in events.files:
        rows += pq.read_table(file.path).to_pylist()
    return sorted(rows, key=lambda row: (row[POSITION], row[SEQUENCE]))


def replayed(log: LocalLog, keys: Mapping[str, tuple[str, ...]]) -> dict[str, Rows]:
    """The rows of each table after all transactions."""
    state: dict[str, Rows] = {table: {} for table in keys}
    for after in replay_steps(log, keys):
        state = after
    return state


def replay_steps(log: LocalLog, keys: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, Rows]]:
    """The rows of each table after each transaction; the same dictionaries every time."""
    state: dict[str, Rows] = {table: {} for table in keys}
    events: dict[int, list[tuple[str, Row]]] = {}
    for table in keys:
        for event in events_of(log, table):
            position = event[POSITION]
            assert isinstance(position, int)
            events.setdefault(position, []).append((table, event))
    for transaction in log.transactions(log.trimmed, log.end):
        mine = events.get(transaction.position, [])
        numbers = [event[SEQUENCE] for _, event in mine]
        assert len(set(numbers)) == len(numbers), "two events of a transaction share a sequence number"
        for table, event in sorted(mine, key=lambda pair: str(pair[1][SEQUENCE]).zfill(20)):
            apply(state[table], event, keys[table])
        yield state


def apply(rows: Rows, event: Row, key: tuple[str, ...]) -> None:
    """Does to the rows what an event says; an event that cannot have happened fails."""
    if event[OP] == TRUNCATE:
        rows.clear()
        return
    identity = tuple(event[column] for column in key)
    if event[OP] == DELETE:
        del rows[identity]
        return
    image = {name: value for name, value in event.items() if name not in _OWN}
    unchanged = event[UNCHANGED]
    assert isinstance(unchanged, list)
    for name in unchanged:
        image[name] = rows[identity][name]
    rows[identity] = image
