"""AUTO CDC with SEQUENCE BY: events that arrive late take their place, and every job's snapshot is exact.

The account is kept in plain Python: per key the events in the order of arrival, told anew for every job.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate
from headgate.errors import MultipleProblems
from headgate.runtime.spark.sessions import SparkSessions
from headgate.scheduling.warehouse import Warehouse
from tests.exactness.world import SMALL_QUERIES

Row = tuple[object, ...]
"""Values of k, seq, name, note."""
START = datetime(2024, 1, 1, tzinfo=UTC)

FLOWS = {
    "current": ("STORED AS SCD TYPE 1", None),
    "versions": ("STORED AS SCD TYPE 2", (2, 3)),
    "by_name": ("STORED AS SCD TYPE 2 TRACK HISTORY ON (Name)", (2,)),
    "but_note": ("STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (NOTE)", (2,)),
    "by_sequence": ("STORED AS SCD TYPE 2 TRACK HISTORY ON (seq)", (1,)),
    "no_column": ("STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (name, note)", ()),
}
"""Clauses, and the places of the tracked columns in a row (None: type 1)."""


@dataclass(frozen=True)
class Event:
    """What a transaction made of a key; `row` is None for a delete."""

    key: object
    commit_at: datetime
    row: Row | None


@dataclass
class History:
    """A warehouse with a table `s.d` and the flows, and the account of what they must hold."""

    folder: Path
    sequence: str = "int"
    limits: Mapping[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    present: dict[object, Row] = field(default_factory=dict)
    transactions: int = 0
    warehouse: Warehouse = field(init=False)

    def __post_init__(self) -> None:
        flows = self.folder / "flows"
        flows.mkdir(parents=True)
        text = "".join(
            f"CREATE STREAMING TABLE {name};\n"
            f"CREATE FLOW {name}_cdc AS AUTO CDC INTO {name} FROM S.D KEYS (K) SEQUENCE BY SEQ {clauses};\n"
            for name, (clauses, _) in FLOWS.items()
        )
        (flows / "flows.sql").write_text(text, encoding="utf-8")
        self.open()

    def open(self) -> None:
        columns = {"k": "int", "seq": self.sequence, "name": "string", "note": "string"}
        self.warehouse = headgate.open(
            {
                "name": "sequence",
                "storage": str(self.folder / "warehouse"),
                "spark": SMALL_QUERIES,
                "libraries": [{"glob": {"include": f"{self.folder}/flows/**"}}],
                "retention": {"jobs": 1000},
                "limits": dict(self.limits),
                "sources": {"s": {"type": "memory", "tables": {"d": {"columns": columns, "key": ["k"]}}}},
            }
        )

    def commit(self, *changes: Row | int, initial: bool = False) -> None:
        """One transaction: rows to set and keys to delete."""
        self.transactions += 1
        moment = START + timedelta(minutes=self.transactions)
        with self.warehouse.source("s").transaction(commit_at=moment, initial=initial) as transaction:
            for change in changes:
                if isinstance(change, tuple):
                    transaction.insert("d", dict(zip(("k", "seq", "name", "note"), change, strict=True)))
                else:
                    transaction.delete("d", {"k": change})
        for key, row in {(c[0] if isinstance(c, tuple) else c): c for c in changes}.items():
            if isinstance(row, tuple):
                self.present[key] = row
                self.events.append(Event(key, moment, row))
            elif self.present.pop(key, None) is not None:
                self.events.append(Event(key, moment, None))

    def close_job(self) -> None:
        job = self.warehouse.close_job()
        if job > len(self.jobs):
            self.jobs.append(len(self.events))

    def check(self, since: int = 1) -> None:
        """Runs what is closed and compares every job."""
        self.close_job()
        self.warehouse.refresh()
        for job in range(since, len(self.jobs) + 1):
            for flow, (_, tracked) in FLOWS.items():
                expected = self.expected(self.events[: self.jobs[job - 1]], tracked)
                assert self.rows(flow, job) == sorted(expected, key=repr), f"{flow} at job {job}"

    def rows(self, flow: str, job: int | None = None) -> list[Row]:
        """Without surrogate keys, which must be different and never negative."""
        with self.warehouse.table(flow, job=job) as answer:
            found = answer.to_arrow().to_pylist()
        keys = [row.pop("__sk") for row in found if "__sk" in row]
        assert len(set(keys)) == len(keys) and all(key >= 0 for key in keys)
        return sorted((tuple(_plain(value) for value in row.values()) for row in found), key=repr)

    def expected(self, events: list[Event], tracked: tuple[int, ...] | None) -> list[Row]:
        found: list[Row] = []
        for key in {event.key for event in events}:
            own = [event for event in events if event.key == key]
            found += _current(own) if tracked is None else self._versions(own, tracked)
        return found

    def _versions(self, events: list[Event], tracked: tuple[int, ...]) -> list[Row]:
        slots: dict[object, list[Row | None]] = {}
        for event in events:
            if event.row is not None:
                slots[event.row[1]] = [event.row]
                continue
            known = [value for value in slots if value is not None]
            if self.sequence == "timestamp":
                known.append(event.commit_at)
            value = max(known, default=None)  # type: ignore[type-var]
            slots[value] = [*(row for row in slots.get(value, []) if row is not None), None]
        versions: list[list[object]] = []
        is_open = False
        for value in sorted(slots, key=_order):
            for row in slots[value]:
                if is_open and row is not None and all(versions[-1][0][place] == row[place] for place in tracked):  # type: ignore[index]
                    versions[-1][0] = row
                    continue
                if is_open:
                    versions[-1][2] = value
                is_open = row is not None
                if row is not None:
                    versions.append([row, value, None])
        return [tuple(_plain(value) for value in (*row, start, end)) for row, start, end in versions]  # type: ignore[misc]


def _current(events: list[Event]) -> list[Row]:
    held: Row | None = None
    for event in events:
        if event.row is None or held is None or _order(event.row[1]) >= _order(held[1]):
            held = event.row
    return [tuple(_plain(value) for value in held)] if held is not None else []


def _order(value: object) -> tuple[bool, object]:
    return (value is not None, value if value is not None else 0)


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


LIMITS = [
    {},
    {"small_table_rows": 1, "rows_per_file": 2},
    # A smaller history is kept from files in every run, below.
    pytest.param({"way": "wide", "rows_per_file": 2}, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("limits", LIMITS, ids=["read whole", "looked up", "from files"])
def test_late_events_take_their_place(spark_sessions: SparkSessions, tmp_path: Path, limits: dict[str, int]) -> None:
    history = History(tmp_path, limits=limits)
    history.commit((1, 10, "a", "x"), (2, 10, "a", "x"), initial=True)
    history.check()
    history.commit((1, 30, "c", "x"))
    history.commit((1, 20, "b", "x"))
    history.close_job()
    history.commit((1, 25, "b", "y"), (2, 5, "z", "x"))
    history.close_job()
    history.commit((1, 30, "d", "x"))
    history.close_job()
    history.commit((1, None, "n", "x"), (3, 1, "q", None))
    history.check()
    history.warehouse.materialize()
    history.commit(1)
    history.commit((1, 22, "late", "x"))
    history.close_job()
    history.commit(1, 3)
    history.warehouse.close(fold_seconds=0)
    history.open()
    history.commit((1, 40, "back", "x"), (2, 10, "b", "y"))
    history.check(since=len(history.jobs))
    history.warehouse.close()


def test_a_late_event_splits_the_version_that_it_falls_into(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    history = History(tmp_path, limits={"way": "wide", "rows_per_file": 2, "small_table_rows": 1})
    history.commit((1, 10, "a", "x"))
    history.close_job()
    history.commit((1, 30, "a", "y"))
    history.check()
    assert history.rows("by_name") == [(1, 30, "a", "y", 10, None)]
    history.commit((1, 20, "b", "x"))
    history.check()
    assert history.rows("by_name") == [
        (1, 10, "a", "x", 10, 20),
        (1, 20, "b", "x", 20, 30),
        (1, 30, "a", "y", 30, None),
    ]
    assert history.rows("current") == [(1, 30, "a", "y")]
    history.commit(1)
    history.check()
    assert history.rows("by_name")[2] == (1, 30, "a", "y", 30, 30)
    assert history.rows("current") == []
    history.warehouse.close()


def test_a_delete_closes_the_version_at_its_commit_when_times_order_them(
    spark_sessions: SparkSessions, tmp_path: Path
) -> None:
    history = History(tmp_path, sequence="timestamp")
    noon = datetime(2023, 12, 31, 12, tzinfo=UTC)
    history.commit((1, noon, "a", "x"), (2, START + timedelta(days=9), "future", "x"))
    history.commit(1)
    history.commit(2)
    history.check()
    closed = (START + timedelta(minutes=2)).isoformat()
    assert (1, noon.isoformat(), "a", "x", noon.isoformat(), closed) in history.rows("versions")
    history.commit((1, noon - timedelta(hours=1), "before", "x"))
    history.close_job()
    history.commit((1, noon + timedelta(days=2), "again", "x"))
    history.check()
    history.warehouse.close()


def test_a_lookup_compares_with_the_sequence_column(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit((1, 10, "a", "x"), (2, 15, "probe", "x"), (3, 10, "probe", "x"))
    history.warehouse.flow(
        "found",
        "SELECT p.k, v.name FROM (SELECT k, seq, 1 AS wanted FROM s.d WHERE k > 1) p"
        " JOIN versions FOR SYSTEM_TIME AS OF p.seq v ON v.k = p.wanted",
    )
    history.warehouse.refresh()
    assert history.rows("found") == [(2, "a"), (3, "a")]
    history.commit((1, 12, "b", "x"))
    history.warehouse.refresh()
    assert history.rows("found") == [(2, "b"), (3, "a")]
    history.warehouse.close()


def test_a_dimension_added_later_starts_with_the_rows_own_values(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    history = History(tmp_path)
    flows = history.folder / "flows" / "flows.sql"
    history.commit((1, 10, "a", "x"))
    history.warehouse.refresh()
    history.warehouse.close()
    text = "CREATE STREAMING TABLE more; CREATE FLOW m AS AUTO CDC INTO more FROM s.d KEYS (k) SEQUENCE BY seq STORED AS SCD TYPE 2;"
    flows.write_text(flows.read_text(encoding="utf-8") + text, encoding="utf-8")
    history.open()
    assert history.rows("more") == [(1, 10, "a", "x", 10, None)]
    history.commit((1, 5, "b", "x"))
    history.warehouse.refresh()
    assert history.rows("more") == [(1, 10, "a", "x", 10, None), (1, 5, "b", "x", 5, 10)]
    history.warehouse.close()


def test_a_column_without_an_order_is_refused(spark_sessions: SparkSessions, tmp_path: Path) -> None:
    with pytest.raises(MultipleProblems, match="cannot order versions"):
        History(tmp_path, sequence="array<int>")


changes = st.one_of(
    st.tuples(st.integers(1, 3), st.sampled_from([None, 1, 2, 3, 4, 5]), st.sampled_from("ab"), st.sampled_from("xy")),
    st.integers(1, 3),
)
transactions = st.lists(changes, min_size=1, max_size=2)
steps = st.lists(st.tuples(transactions, st.sampled_from(["go on", "close", "run"])), min_size=4, max_size=16)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_any_arrival_order_gives_the_history_of_the_sequence(
    spark_sessions: SparkSessions, found: list[tuple[list[Row | int], str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "p")
        since = 1
        for changed, then in found:
            history.commit(*changed)
            if then == "close":
                history.close_job()
            elif then == "run":
                history.check(since)
                since = len(history.jobs)
        history.check()
        history.warehouse.close()
