"""A source whose tables are loaded range by range when the test says so: the log takes every change from the first on, and a load
reads the model as it stands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.capture.memory import MemorySource
from headgate.capture.source import FirstLoad, RangeRead
from headgate.ranges.key_set import KeySet, Value
from headgate.runtime.sources import sources
from headgate.runtime.sources.loading import Loads
from tests.exactness.world import START, World


@dataclass
class Script:
    """What the source is told; it outlives the warehouse's process."""

    tables: tuple[str, ...]
    world: World | None = None
    loaded: set[str] = field(default_factory=set)
    read: list[tuple[str, KeySet]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    """Is done while a load reads, behind its position."""
    is_failing: bool = False


def scripted(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    """From now on sources in memory follow the script, and nothing is loaded by itself."""

    class Source(MemorySource):
        def __init__(self, *parts: object) -> None:
            super().__init__(*parts)  # type: ignore[arg-type]
            script.loaded.clear()
            self._begun: dict[str, int] = {}

        @property
        def first_loads(self) -> dict[str, FirstLoad]:  # type: ignore[override]
            return {
                name: FirstLoad(self._begun.get(name), None, 1 << 30)
                for name in script.tables
                if name not in script.loaded
            }

        def load(self, tables: object, is_stopped: object) -> None:
            raise AssertionError("the tables are loaded range by range")

        def bounds(self, table: str, column: str, count: int) -> tuple[Value, ...] | None:
            return ()

        @contextmanager
        def read_ranges(self, table: str, column: str, is_stopped: Callable[[], bool]) -> Iterator[RangeRead]:
            assert script.world is not None
            self._begun[table] = self.log.end + 1
            fields = to_arrow_schema(self.tables[table].schema, timezone="UTC")
            found = [dict(row) for row in script.world.model.state(self.log.end)[table].values()]

            def read(keys: KeySet) -> Generator[pa.RecordBatch, None, None]:
                rows = [row for row in found if keys.holds(row[column])]  # type: ignore[arg-type]
                yield pa.RecordBatch.from_pylist(rows, schema=fields)

            def verify() -> None:
                script.meanwhile()
                if script.is_failing:
                    raise ConnectionError("the source went away")

            position = self.log.end
            try:
                yield RangeRead(position, read, verify)
            finally:
                del self._begun[table]

        def mark(self, position: int) -> None:
            with self._commit_lock:
                assert position <= self.log.end
                with self.log.begin(self.log.end + 1, self.log.end_commit_at or START) as writer:
                    writer.commit()
                self.log.sync()
            assert script.world is not None
            follow(script.world, self.log.end)

        def loaded(self, table: str) -> None:
            script.loaded.add(table)

    monkeypatch.setattr(sources, "MemorySource", Source)
    monkeypatch.setattr(Loads, "start", lambda loads: None)


def follow(world: World, end: int) -> None:
    """Gives the model as many transactions as the log has: marks are without rows."""
    known = world.model.transactions
    assert all(each.after == known[-1].after for each in known[end:])
    del known[end:]
    known += [known[-1]] * (end - len(known))
