"""What a source holds, kept in plain Python: the independent account against which the warehouse is judged.

Every committed transaction gives a new state; a job is a number of transactions. Slowly changing dimensions are told
from the states, one step per transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

Row = dict[str, object]
Key = tuple[object, ...]
State = Mapping[str, Mapping[Key, Row]]

COMMIT_AT = "__commit_at"
BEGINNING = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Table:
    """A source table; columns with their Spark types."""

    columns: Mapping[str, str]
    key: tuple[str, ...]

    def key_of(self, row: Mapping[str, object]) -> Key:
        return tuple(row[column] for column in self.key)


@dataclass(frozen=True)
class Insert:
    table: str
    row: Row


@dataclass(frozen=True)
class Update:
    """Sets the given columns; with `key`, moves the row from that key."""

    table: str
    row: Row
    key: Row | None = None


@dataclass(frozen=True)
class Delete:
    table: str
    key: Row


@dataclass(frozen=True)
class Truncate:
    table: str


Change = Insert | Update | Delete | Truncate


@dataclass(frozen=True)
class Transaction:
    commit_at: datetime
    initial: bool
    after: State

    @property
    def stamp(self) -> datetime:
        return BEGINNING if self.initial else self.commit_at


@dataclass
class Model:
    tables: Mapping[str, Table]
    transactions: list[Transaction] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    """Per job the number of transactions up to its cut."""

    def state(self, transactions: int) -> State:
        if transactions == 0:
            return {name: {} for name in self.tables}
        return self.transactions[transactions - 1].after

    def commit(self, changes: Sequence[Change], commit_at: datetime, initial: bool) -> None:
        state = {name: dict(rows) for name, rows in self.state(len(self.transactions)).items()}
        stamp = BEGINNING if initial else commit_at
        for change in changes:
            self._apply(state[change.table], change, stamp)
        self.transactions.append(Transaction(commit_at, initial, state))

    def _apply(self, rows: dict[Key, Row], change: Change, stamp: datetime) -> None:
        table = self.tables[change.table]
        match change:
            case Insert(_, row):
                rows[table.key_of(row)] = {**dict.fromkeys(table.columns), **row, COMMIT_AT: stamp}
            case Update(_, row, key):
                if key is not None:
                    rows.pop(table.key_of(key), None)
                old = rows.get(table.key_of(row), dict.fromkeys(table.columns))
                rows[table.key_of(row)] = {**old, **row, COMMIT_AT: stamp}
            case Delete(_, key):
                rows.pop(table.key_of(key), None)
            case Truncate():
                rows.clear()

    def close_job(self) -> int:
        """The job that a cut now gives: a new one if anything committed since the newest."""
        if len(self.transactions) > (self.jobs[-1] if self.jobs else 0):
            self.jobs.append(len(self.transactions))
        return len(self.jobs)

    def at_job(self, job: int) -> State:
        return self.state(self.jobs[job - 1] if job else 0)


@dataclass(frozen=True)
class Dimension:
    """An AUTO CDC flow; `since` is the number of transactions that it was built from at once."""

    name: str
    source: str
    scd_type: int = 2
    track: tuple[str, ...] | None = None
    since: int = 0

    def statements(self, table: Table) -> str:
        track = f" TRACK HISTORY ON ({', '.join(self.track)})" if self.track is not None else ""
        return (
            f"CREATE STREAMING TABLE {self.name};\n"
            f"CREATE FLOW {self.name}_cdc AS AUTO CDC INTO {self.name} FROM s.{self.source}"
            f" KEYS ({', '.join(table.key)}) STORED AS SCD TYPE {self.scd_type}{track};\n"
        )

    def rows(self, model: Model, transactions: int) -> list[Row]:
        """The dimension after so many transactions; type 2 with `__version`, the key's version number."""
        states = [model.state(count)[self.source] for count in range(transactions + 1)]
        if self.scd_type == 1:
            return [_visible(row) for row in states[-1].values()]
        versions: dict[Key, list[Row]] = {}
        for key, row in states[min(self.since, transactions)].items() if self.since else ():
            versions[key] = [{**_visible(row), "__start_at": BEGINNING, "__end_at": None}]
        for count in range(self.since, transactions):
            transaction = model.transactions[count]
            before, after = states[count], states[count + 1]
            for key in before.keys() | after.keys():
                self._step(versions.setdefault(key, []), before.get(key), after.get(key), transaction.stamp)
        return [{**version, "__version": number} for found in versions.values() for number, version in enumerate(found)]

    def _step(self, versions: list[Row], before: Row | None, after: Row | None, moment: datetime) -> None:
        if after is None:
            if before is not None:
                versions[-1]["__end_at"] = moment
            return
        if before is not None and all(_same(before[column], after[column]) for column in self._tracked(after)):
            versions[-1] |= _visible(after)
            return
        if before is not None:
            versions[-1]["__end_at"] = moment
        versions.append({**_visible(after), "__start_at": moment, "__end_at": None})

    def _tracked(self, row: Row) -> tuple[str, ...]:
        return self.track if self.track is not None else tuple(_visible(row))


def _visible(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != COMMIT_AT}


def _same(left: object, right: object) -> bool:
    """Equality as of `<=>`: NaN equals NaN."""
    return left == right or (left != left and right != right)
