"""Split, merge and move ranges while queries and writers go on: nothing is rewritten.

Only ranges at one job can become one: those that do are brought there first, others stay where they are, and no stage runs for
a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import RLock

from pyspark.sql import SparkSession

from headgate.config.live import LiveProject
from headgate.dataflow.relation import quoted
from headgate.errors import DefiniteError
from headgate.ranges.key_set import Value
from headgate.ranges.range_map import MOST_RANGES, RangeMap, Ranges, even_bounds, parse
from headgate.runtime.execution.executor import Executor
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.range_maps import RangeMaps
from headgate.runtime.flows.range_status import TableRangesStatus, range_status
from headgate.runtime.stages.stage import tables_of
from headgate.runtime.stages.state_stage import StateStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.stored import StoredTable
from headgate.warehouse.borders import RowsBetween, borders
from headgate.warehouse.divided import Division

_SAMPLED_KEYS = 10_000
_THERE = -1
"""In place of a position: the range is not being loaded."""


@dataclass(frozen=True)
class Dividing:
    """Changes range maps; its methods may be called from any thread."""

    _settings: LiveProject
    _flows: FlowSet
    _range_maps: RangeMaps
    _journal: Journal
    _executor: Executor
    _session: Callable[[], SparkSession]
    _graph_lock: RLock

    def status(self) -> list[TableRangesStatus]:
        with self._graph_lock:
            return [
                range_status(stage.target, stage if isinstance(stage, ViewStage) else None)
                for stage in self._flows.stages()
                if not isinstance(stage, StateStage)
            ]

    def split(self, table: str, at: str) -> None:
        """Cuts the range that holds a value, there."""
        self._change(table, lambda division: division.map.split(parse(division.map.kind, at)))

    def merge(self, table: str, number: int) -> None:
        """Makes one of a range and the one behind it."""
        self._change(table, lambda division: division.map.merge(number))

    def set_bounds(self, table: str, bounds: Sequence[str]) -> None:
        """Cuts the table at these values and nowhere else."""
        self._change(
            table,
            lambda division: RangeMap(division.map.kind, tuple(parse(division.map.kind, bound) for bound in bounds)),
        )

    def set_count(self, table: str, count: int) -> None:
        """Cuts the table into so many ranges with about equally many rows, as far as a sample of its keys tells."""
        if not 1 <= count <= MOST_RANGES:
            raise DefiniteError(f"a table cannot have {count} ranges", hint=f"take 1 to {MOST_RANGES}")
        with self._graph_lock:
            bounds = self._even_bounds(self._target(table), self._division(table), count)
            self._change(table, lambda now: RangeMap(now.map.kind, bounds))

    def choose(self) -> list[tuple[str, int]]:
        """Cuts families whose bounds nobody gave, by the rows of their largest table; gives the tables with how many ranges."""
        with self._graph_lock:
            return self._choose()

    def _choose(self) -> list[tuple[str, int]]:
        largest: dict[str, StoredTable] = {}
        for stage in self._flows.stages():
            division = stage.target.division
            if division is not None and not (isinstance(stage, ViewStage) and stage.aligned):
                known = largest.setdefault(division.family, stage.target)
                if stage.target.main.rows > known.main.rows:
                    largest[division.family] = stage.target
        chosen: list[tuple[str, int]] = []
        for family, stored in largest.items():
            rows = self._settings.current.limits.range_rows
            count = self._range_maps.wanted_count(family, stored.main.rows, rows)
            if count is not None and stored.division is not None:
                bounds = self._even_bounds(stored, stored.division, count)
                self._change(stored.name, lambda now, bounds=bounds: RangeMap(now.map.kind, bounds), chosen=True)  # type: ignore[misc]
                chosen.append((stored.name, count))
        return chosen

    def _even_bounds(self, stored: StoredTable, division: Division, count: int) -> tuple[Value, ...]:
        """Bounds with about equally many rows between: by the statistics of the table's files, else by a sample."""
        index = stored.main.newest_index
        if division.map.kind == "integer" and stored.spec.lead == division.column and len(index) >= 2 * count:
            rows = index.rows_of[index.ranged]
            pieces = [
                RowsBetween(int(low), int(high), int(n))
                for low, high, n in zip(index.lows, index.highs, rows, strict=True)
            ]
            return tuple(borders(pieces, count))
        session = self._session()
        with stored.main.pin(stored.level) as pin:
            keys = pin.frame(session).select(quoted(division.column)).dropna()
            held = max(1, stored.count(pin.job))
            found = (
                keys.sample(fraction=min(1.0, _SAMPLED_KEYS / held), seed=1)
                .limit(2 * _SAMPLED_KEYS)
                .toArrow()
                .column(0)
            )
        values = sorted(parse(division.map.kind, value) for value in found.to_pylist())
        return even_bounds(values, count) if values else ()

    def _change(self, table: str, change: Callable[[Division], RangeMap], *, chosen: bool = False) -> None:
        with self._graph_lock:
            self._change_locked(table, change, chosen)

    def _change_locked(self, table: str, change: Callable[[Division], RangeMap], chosen: bool) -> None:
        division = self._division(table)
        stages = [stage for stage in self._flows.stages() if _is_of(stage.target, division.family)]
        tables = [stored for stage in stages for stored in tables_of(stage) if _is_of(stored, division.family)]
        wanted = change(division)
        joined = _joined(division.map, wanted)
        uneven: str | None = None
        while True:
            if joined:
                keys = division.map.keys_of(joined)
                self._executor.settle(
                    [stage.name for stage in stages], self._journal.chain.newest, {stage.name: keys for stage in stages}
                )
            # Whoever looks at ranges by their numbers holds one of the two locks.
            with self._executor.paused(), self._journal.lock, self._executor.dividing():
                _require_equally_read(tables, division.map, wanted)
                before, uneven = uneven, _uneven(tables, division.map, wanted)
                if uneven is None:
                    self._range_maps.remember(division.family, wanted, chosen=chosen)
                    for stored in tables:
                        assert stored.division is not None
                        stored.divide(replace(stored.division, map=wanted))
                    return
            # A query may have brought one of them further before stages paused; what fails stays where it is.
            if uneven == before:
                raise DefiniteError(uneven, hint="`headgate status` tells what keeps one of them back; then try again")

    def _target(self, table: str) -> StoredTable:
        known = {stage.name.casefold(): stage.target for stage in self._flows.stages()}
        if table.casefold() not in known:
            raise DefiniteError(f"there is no table {table}", hint=f"there are {', '.join(known) or 'none'}")
        return known[table.casefold()]

    def _division(self, table: str) -> Division:
        found = self._target(table).division
        if found is None:
            raise DefiniteError(
                f"{table} has one range",
                hint="name the range column of its source table in the project file: ranges: {column: …}",
            )
        return found


def _is_of(table: StoredTable, family: str) -> bool:
    return table.division is not None and table.division.family == family


def _joined(old: RangeMap, new: RangeMap) -> Ranges:
    """The ranges that become one with others, wholly or in part."""
    found = [old.holding(new.keys_of([number])) for number in range(new.count)]
    return frozenset(each for ranges in found if len(ranges) > 1 for each in ranges)


def _uneven(tables: Sequence[StoredTable], old: RangeMap, new: RangeMap) -> str | None:
    """Which ranges that are to become one stand at different jobs."""
    for table in tables:
        throughs = table.throughs
        for number in range(new.count):
            concerned = sorted(old.holding(new.keys_of([number])))
            if len({throughs[each] for each in concerned}) > 1:
                where = ", ".join(f"{old.name(each)} at job {throughs[each]}" for each in concerned)
                return f"ranges of {table.name} stand at different jobs: {where}"
    return None


def _require_equally_read(tables: Sequence[StoredTable], old: RangeMap, new: RangeMap) -> None:
    """Raises where ranges that are to become one were not read at one position of their source."""
    for table in tables:
        missing = table.missing
        for number in range(new.count) if missing else ():
            concerned = sorted(old.holding(new.keys_of([number])))
            first = {each: missing[each] for each in concerned if each in missing and missing[each].is_first}
            if len({first[each].read_at if each in first else _THERE for each in concerned}) > 1:
                raise DefiniteError(
                    f"ranges of {table.name} cannot be merged while some of them are being loaded:"
                    f" {', '.join(old.name(each) for each in concerned)}",
                    hint="`headgate load` shows how far that is; then try again",
                )
