"""The range maps of a warehouse: bounds per family of tables, as the project or a flow declares them, or as they were chosen since.

Tables of one source with a range column of the same name are a family, `shop.purc_id`. Views inherit, or have a family of their
own, `sums.store_id`. Where no bounds are declared, they are chosen: as many ranges as are declared, or by the table's size.
A large table for which nothing is declared has ranges from its first load on, in a family of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headgate.config.live import LiveProject
from headgate.config.ranges import RangeSettings
from headgate.delta.changes import COPY, ROW_HASH
from headgate.errors import ConfigError, FlowError, Location
from headgate.ranges.range_map import Kind, RangeMap, kind_of, parse
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import RANGES
from headgate.warehouse.divided import Division
from headgate.warehouse.spec import TableSpec

RANGE_COLUMN = "range_column"
"""In the ledger's record of a source table: the column of ranges that it got for its first load."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the project, or a flow, says of a family."""

    map: RangeMap
    count: int | None = None
    """How many ranges are to be chosen; None: by the table's size, or as the bounds say."""

    def body(self) -> dict[str, Any]:
        return self.map.body() | ({} if self.count is None else {"count": self.count})


@dataclass(frozen=True)
class RangeMaps:
    _settings: LiveProject
    _journal: Journal
    _declared: dict[str, Declared] = field(default_factory=dict)
    """By family."""

    def of_source(self, source: str, name: str, spec: TableSpec) -> Division | None:
        """How a source's table is cut."""
        tables = self._tables(source)
        if name not in tables:
            return None
        said = tables[name]
        column = next((own for own in spec.columns if own.casefold() == said.column.casefold()), None)
        if column is None or column not in spec.key:
            raise ConfigError(
                f"{spec.name} cannot have ranges of {said.column}, which is not a column of its key",
                hint=f"its key is {', '.join(spec.key)}: a deleted row is known by its key alone",
            )
        kind = kind_of(spec.schema[column].dataType.simpleString())
        if kind is None:
            raise ConfigError(
                f"{spec.name} cannot have ranges of {column}, a {spec.schema[column].dataType.simpleString()}",
                hint="take a column of whole numbers, dates, timestamps or text",
            )
        family = f"{source}.{_family(said)}"
        return self._division(family, column, self._of_family(source, _family(said), kind))

    def of_view(self, spec: TableSpec, column: str, count: int) -> Division:
        """How a view is cut that says so itself."""
        own, kind = own_range_column(spec, column)
        return self._division(f"{spec.name}.{column}", own, Declared(RangeMap(kind), count))

    def _division(self, family: str, column: str, declared: Declared) -> Division:
        self._declared[family] = declared
        return Division(family, column, self._current(family, declared))

    def _of_family(self, source: str, name: str, kind: Kind) -> Declared:
        same = [said for said in self._tables(source).values() if _family(said) == name]
        bounds = {tuple(parse(kind, bound) for bound in each.bounds) for each in same if each.bounds}
        counts = {each.count for each in same if each.count is not None}
        if len(bounds) + len(counts) > 1:
            raise ConfigError(
                f"tables of the source {source} give different bounds for ranges of {name}",
                hint="give the bounds at one of the tables, or each table a family of its own: ranges: {family: …}",
            )
        return Declared(RangeMap(kind, next(iter(bounds), ())), next(iter(counts), None))

    def _tables(self, source: str) -> dict[str, RangeSettings]:
        settings = self._settings.current.sources.get(source)
        tables = getattr(settings, "tables", {})
        chosen = {name: self._chosen(source, name) for name in tables}
        found = {name: getattr(table, "ranges", None) or chosen[name] for name, table in tables.items()}
        return {name: said for name, said in found.items() if said is not None}

    def _chosen(self, source: str, name: str) -> RangeSettings | None:
        """How a table is cut that says nothing of it, since it is large."""
        record = self._journal.records.sources.get(f"{source}.{name}")
        column = None if record is None else record.get(RANGE_COLUMN)
        return None if column is None else RangeSettings(column=column, family=f"{name}.{column}")

    @property
    def load_bytes(self) -> int:
        """Source tables with more bytes are loaded range by range."""
        return self._settings.current.limits.spark_load_bytes

    def _current(self, family: str, declared: Declared) -> RangeMap:
        """The map that counts: the one that was made of what is declared, as long as the same is declared."""
        record = self._journal.records.ranges.get(family)
        if record is None or record["declared"] != declared.body():
            return declared.map
        return RangeMap.from_body(record)

    def remember(self, family: str, changed: RangeMap, *, chosen: bool = False) -> None:
        """Keeps what was made of the map: by a command, or chosen without one."""
        body = {"family": family, "declared": self._declared[family].body(), **changed.body()}
        self._journal.record([(RANGES, body | ({"chosen": True} if chosen else {}))])

    def wanted_count(self, family: str, rows: int, rows_per_range: int) -> int | None:
        """How many ranges a family is to get now, whose largest table has so many rows; None where nothing is to be chosen.

        A count that is declared is chosen once; by size, again when the table has grown to twice as many ranges.
        """
        declared, record = self._declared[family], self._journal.records.ranges.get(family)
        known = record if record is not None and record["declared"] == declared.body() else None
        if declared.map.bounds or (known is not None and (declared.count is not None or "chosen" not in known)):
            return None
        if declared.count is not None:
            return declared.count if rows >= _ROWS_TO_CHOOSE * declared.count else None
        count = min(_MOST_BY_SIZE, rows // rows_per_range)
        return count if count >= 2 * (1 if known is None else len(known["bounds"]) + 1) else None


def own_range_column(spec: TableSpec, column: str, where: Location | None = None) -> tuple[str, Kind]:
    """The column that a view names for its ranges, as it is spelled, and its kind."""
    # A row's range must follow from its key: equal rows of a bag have equal values.
    names = [name for name in (spec.columns if ROW_HASH in spec.key else spec.key) if name not in (ROW_HASH, COPY)]
    own = next((each for each in names if each.casefold() == column), None)
    if own is None:
        raise FlowError(
            f"{spec.name} cannot have ranges of {column}, which is not a column of its key",
            where=where,
            hint=f"take one of: {', '.join(names) or 'none, since it has one row'}",
        )
    kind = kind_of(spec.schema[own].dataType.simpleString())
    if kind is None:
        raise FlowError(
            f"{spec.name} cannot have ranges of {own}, a {spec.schema[own].dataType.simpleString()}",
            where=where,
            hint="take a column of whole numbers, dates, timestamps or text",
        )
    return own, kind


_ROWS_TO_CHOOSE = 10
"""Rows per range from which on a sample of them tells where to cut."""
_MOST_BY_SIZE = 32


def _family(said: RangeSettings) -> str:
    return (said.family or said.column).casefold()
