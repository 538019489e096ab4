"""Which keys of each table a query reads, from its literals alone: Spark plans the text over relations that have no rows.

Such a relation is not known to be empty, so nothing is folded away, and no value of a table can narrow anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from headgate.dataflow.relation import quoted
from headgate.ranges.key_set import ALL, KeySet
from headgate.ranges.narrowing import MARKER, keys_read, reads_the_time

_REMEMBERED = 1_000
SETTINGS = {"spark.sql.optimizer.inSetConversionThreshold": str(1 << 30)}
"""Lists of any length stay lists of literals in the plan."""


def empty_relation(session: SparkSession, schema: StructType) -> DataFrame:
    """A relation without rows, of which Spark knows the columns only."""
    java = session._jsparkSession
    rows = session.sparkContext._jsc.emptyRDD()
    return DataFrame(java.createDataFrame(rows, java.parseDataType(schema.json())), session)


def _like(session: SparkSession) -> SparkSession:
    """A session in which a text means what it means in this one: time zone, case and rules of types are the same."""
    found = session.newSession()
    for name, value in {**session.conf.getAll, **SETTINGS}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
    return found


@dataclass
class Relations:
    """The relations without rows that one query is planned over, with the column of each that tells its table."""

    session: SparkSession
    views: dict[str, str] = field(default_factory=dict)
    """By marker the view."""

    def view(self, number: int, schema: StructType) -> str:
        """A view of a table that is told from others by its number."""
        marker = f"{MARKER}{number}"
        if marker not in self.views:
            marked = StructType([StructField(marker, IntegerType()), *schema.fields])
            name = f"headgate{marker}_{id(self)}"
            frame = empty_relation(self.session, marked)
            frame.select(*[quoted(column) for column in schema.names]).createOrReplaceTempView(name)
            self.views[marker] = name
        return self.views[marker]

    def close(self) -> None:
        for name in self.views.values():
            self.session._jsparkSession.sessionState().catalog().dropTempView(name)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The keys that a query reads of tables with ranges, of others all, and the definitions that this holds for."""

    keys: Mapping[str, KeySet] = field(default_factory=dict)
    premise: Hashable = None
    """None for what holds whatever tables there are."""


WHOLE = Narrowed()
"""All keys."""


class KeysOutdated(Exception):
    """Flows or range columns are others than those that the keys were told from."""


class Unnarrowed(Exception):
    """A query of which it is known that it reads all keys."""


class Narrowing:
    """Finds the keys that queries read; may be used by many threads."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._make_session = session
        self._session: SparkSession | None = None
        self._known: dict[object, Mapping[str, KeySet]] = {}
        self._lock = Lock()

    def keys(
        self,
        columns: Mapping[str, str],
        text: Callable[[Callable[[str, StructType], str]], str],
        remembered_as: object = None,
    ) -> Mapping[str, KeySet]:
        """The keys that a query can depend on, by table; `columns` names the range column of each table that has one.

        `text` gives the query over the relations that it asks for, by the table's name and columns. What cannot be planned
        reads all keys: whoever runs the query learns why it fails.
        """
        with self._lock:
            known = self.known(remembered_as)
            if known is not None:
                return known
            found = self._planned(columns, text)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if remembered_as is not None:
                self._known[remembered_as] = found
        return found

    def known(self, remembered_as: object) -> Mapping[str, KeySet] | None:
        """What was found before."""
        return None if remembered_as is None else self._known.get(remembered_as)

    def _planned(
        self, columns: Mapping[str, str], text: Callable[[Callable[[str, StructType], str]], str]
    ) -> Mapping[str, KeySet]:
        if self._session is None:
            self._session = _like(self._make_session())
        relations = Relations(self._session)
        numbers: dict[str, int] = {}

        def relation(table: str, schema: StructType) -> str:
            return relations.view(numbers.setdefault(table, len(numbers)), schema)

        try:
            plan = self._optimized(text(relation))
            if plan is None:
                return dict.fromkeys(columns, ALL)
            markers = {f"{MARKER}{numbers[table]}": column for table, column in columns.items() if table in numbers}
            found = keys_read(plan, markers)
            return {table: found.get(f"{MARKER}{numbers.get(table)}", ALL) for table in columns}
        except (PySparkException, Py4JError):
            return dict.fromkeys(columns, ALL)
        finally:
            relations.close()

    def _optimized(self, text: str) -> str | None:
        """The plan of a text; None where it depends on the time at which it is made."""
        assert self._session is not None
        spark = self._session._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
        before = spark.getActiveSession()
        try:
            execution = self._session.sql(text)._jdf.queryExecution()
            # Literals are written in the time zone of the thread's session.
            spark.setActiveSession(self._session._jsparkSession)
            return None if reads_the_time(execution.analyzed().toJSON()) else str(execution.optimizedPlan().toJSON())
        finally:
            if before.isDefined():
                spark.setActiveSession(before.get())
            else:
                spark.clearActiveSession()
