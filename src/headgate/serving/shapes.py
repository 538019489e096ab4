"""Translations that are made once for all queries that differ in plain values alone.

    SELECT revenue FROM sales WHERE ticket = 7 LIMIT 5      a value to fill in: 7; a value of the shape: 5

Reading and translating a query takes longer than a lookup by key. A text is split at its numbers and texts; where a query of
the same shape was translated before, its values are put into that translation.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp

from headgate.errors import Location
from headgate.serving.expressions import NotTranslated, quoted_text
from headgate.serving.lookups import looked_up
from headgate.serving.placed import PlacedTable
from headgate.serving.translation import Translated, translate
from headgate.sql.positions import SPAN, QueryText

MOST_SHAPES = 500
_VALUE = re.compile(r"'([^']*)'|(?<![\w.$])(\d{1,9})(?![\w.])", re.ASCII)
_UNUSUAL = re.compile(r"\\|`|\"|--|/\*|''|\x00|\$|\b(?:currency|deadline|stale)\b", re.IGNORECASE)
"""Texts with these are not split: what they hold need not be a value, or is one of a bound."""
_SLOT = re.compile(r"\x00(\d+)\x00")


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A translation in which values are to be filled in."""

    translated: Translated
    tables: tuple[PlacedTable, ...]
    fixed: Mapping[int, str]
    """Values that are part of the translation, by their number in the text."""
    prepared: str
    """Its text with parameters, and which of the text's values each of them is."""
    parameters: tuple[int, ...]
    arrow: pa.Schema
    lookup: tuple[str, tuple[str, ...]] | None
    """The table and the columns by which an index would find its rows."""


@dataclass(frozen=True, slots=True)
class ServedQuery:
    """A query that a platform can answer."""

    shape: QueryShape
    values: Sequence[str]
    """As they stand in the text."""

    @property
    def sql(self) -> str:
        """Without a limit beyond its own."""
        return _SLOT.sub(lambda match: self.values[int(match[1])], self.shape.translated.sql)

    @property
    def parameters(self) -> list[bytes]:
        return [self.values[slot].strip("'").encode() for slot in self.shape.parameters]


class Shapes:
    """The translations of one platform; made anew when its tables change. May be used by many threads."""

    def __init__(self, tables: Mapping[str, PlacedTable], schema: str) -> None:
        """`tables` by their folded names."""
        self.tables = tables
        self._schema = schema
        self._lock = threading.Lock()
        self._shapes: OrderedDict[str, list[QueryShape]] = OrderedDict()

    def find(self, text: str) -> ServedQuery | None:
        """The query as it was translated for another one of its shape."""
        if _UNUSUAL.search(text) is not None:
            return None
        values: list[str] = []
        place = _split(text, values)
        with self._lock:
            shapes = self._shapes.get(place)
            if shapes is None:
                return None
            self._shapes.move_to_end(place)
        for shape in shapes:
            if all(values[slot] == value for slot, value in shape.fixed.items()):
                return ServedQuery(shape, values)
        return None

    def translate(self, text: str, names: Sequence[str]) -> ServedQuery:
        """Translates a query over the tables of these folded names; raises `NotTranslated`."""
        missing = [name for name in names if name not in self.tables]
        if missing:
            raise NotTranslated(f"{missing[0]} is not placed there")
        if "\\" in text:
            raise NotTranslated("a text with escapes")
        query = QueryText(text, Location("query"))
        tree = query.parse()
        tables = tuple(self.tables[name] for name in names)
        used = {name: self.tables[name] for name in names}
        if _UNUSUAL.search(text) is not None:
            return ServedQuery(_shape(translate(tree, used, self._schema), tables, {}, looked_up(tree, used)), ())
        starts = {match.start(): slot for slot, match in enumerate(_VALUE.finditer(text))}
        filled: set[int] = set()

        def literal(node: exp.Literal) -> str:
            span = node.meta.get(SPAN)
            slot = starts.get(query.tokens[span[0]].start) if span is not None and span[0] == span[1] else None
            if slot is None:
                return quoted_text(node.this) if node.is_string else str(node.this)
            filled.add(slot)
            return f"\x00{slot}\x00"

        made = translate(tree, used, self._schema, literal)
        values: list[str] = []
        place = _split(text, values)
        fixed = {slot: value for slot, value in enumerate(values) if slot not in filled}
        shape = _shape(made, tables, fixed, looked_up(tree, used))
        with self._lock:
            self._shapes.setdefault(place, []).insert(0, shape)
            del self._shapes[place][8:]
            while len(self._shapes) > MOST_SHAPES:
                self._shapes.popitem(last=False)
        return ServedQuery(shape, values)


def _split(text: str, values: list[str]) -> str:
    """The text without its values, which are added to the list as PostgreSQL writes them."""

    def taken(match: re.Match[str]) -> str:
        values.append(match[0] if match[2] is None else match[2])
        return "\x00n" if match[1] is None else "\x00t"

    return _VALUE.sub(taken, text)


def _shape(
    made: Translated,
    tables: tuple[PlacedTable, ...],
    fixed: Mapping[int, str],
    lookup: tuple[str, tuple[str, ...]] | None,
) -> QueryShape:
    numbers: dict[int, int] = {}

    def parameter(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(int(match[1]), len(numbers) + 1)}"

    prepared = _SLOT.sub(parameter, made.sql)
    return QueryShape(
        made, tables, fixed, prepared, tuple(numbers), to_arrow_schema(made.schema, timezone="UTC"), lookup
    )
