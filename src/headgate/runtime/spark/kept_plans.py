"""Plans of small queries, kept from job to job: what was planned once is run again over other rows.

A query over rows of the driver is planned over leaves without rows, which Spark can neither fold nor prefer for their size; so the plan
is right for any rows. To run it is to put the rows of the day into its leaves. Everything is one partition: no plan has an
exchange, and the parts of several queries are computed one after the other by one task.

    shape of a text ── planned once ──▶ plan over empty leaves ── leaves replaced ──▶ RDD of Arrow batches
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from headgate.runtime.spark.entered_rows import Entered, Shape, drop_view, fresh_name, place_names, renamed
from headgate.runtime.spark.one_partition import without_exchanges
from headgate.runtime.spark.threads import DaemonThreads
from headgate.warehouse.local import empty_frame, typed_rows

MOST_PLANS = 1_000
MOST_ROWS = 50_000
"""Of one leaf: its rows are part of a task."""
MOST_BYTES = 8 << 20
_SEPARATOR = b"|"
_FORBIDDEN = ("Exchange", "Subquery", "InMemory")


@dataclass(frozen=True)
class PhysicalPlan:
    number: int
    schema: StructType

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return to_arrow_schema(self.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


@dataclass(frozen=True)
class ReadyQuery:
    """A query that is ready to run: its plan, and the names of its rows."""

    kept: PhysicalPlan
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join((str(self.kept.number), *self.names))


class KeptPlans:
    """One session's; may be used by many threads."""

    def __init__(self, session: SparkSession) -> None:
        """The session is used for nothing else, and broadcasts nothing."""
        self._session = session
        self._lock = threading.Lock()
        self._plans: OrderedDict[Shape, PhysicalPlan | None] = OrderedDict()
        self._numbers = itertools.count()
        self._java = _Java(session)

    def ready(self, shape: Shape, entered: Sequence[Entered]) -> ReadyQuery | None:
        """The query over its rows; None if no plan can be kept for it, or the rows are too many."""
        if any(each.rows.num_rows > MOST_ROWS or each.rows.nbytes > MOST_BYTES for each in entered):
            return None
        kept = self._find(shape, entered)
        if kept is None:
            return None
        for each in entered:
            self.enter(each)
        return ReadyQuery(kept, tuple(each.name for each in entered))

    def enter(self, entered: Entered) -> None:
        """Brings rows into Spark before a plan needs them."""
        entered.enter(self._enter)

    def forget(self, names: Sequence[str]) -> None:
        """Lets rows go that were entered."""
        self._java.plans.forget(" ".join(names))

    def collect(self, parts: Sequence[ReadyQuery]) -> list[pa.Table]:
        """The rows of each part, from one Spark job."""
        self._java.set_properties()
        port, _, secret = self._java.plans.collect("|".join(part.text for part in parts)).partition(" ")
        # Without a secret, it is the path of a socket.
        place: Any = (int(port), secret) if secret else (port, None)
        found: list[list[bytes]] = [[]]
        with _load_from_socket(place, NoOpSerializer()) as stream:
            for batch in stream:
                if batch == _SEPARATOR:
                    found.append([])
                else:
                    found[-1].append(batch)
        return [_table(part.kept.arrow_schema, batches) for part, batches in zip(parts, found, strict=True)]

    def _find(self, shape: Shape, entered: Sequence[Entered]) -> PhysicalPlan | None:
        with self._lock:
            if shape in self._plans:
                self._plans.move_to_end(shape)
                return self._plans[shape]
        kept = self._planned(shape, entered)
        gone: list[PhysicalPlan | None] = []
        with self._lock:
            # Another thread may have planned it meanwhile.
            gone.append(self._plans.pop(shape, None))
            self._plans[shape] = kept
            while len(self._plans) > MOST_PLANS:
                gone.append(self._plans.popitem(last=False)[1])
        for each in gone:
            if each is not None:
                self._java.plans.forgetPlan(each.number)
        return kept

    def _planned(self, shape: Shape, entered: Sequence[Entered]) -> PhysicalPlan | None:
        """The shape's plan over leaves without rows; None if it cannot be kept."""
        if not all(each.schema.fields for each in entered):
            return None
        names = [fresh_name() for _ in entered]
        places: list[int] = []
        self._java.activate()
        try:
            for place, (name, each) in enumerate(zip(names, entered, strict=True)):
                rdd = self._java.empty_rdd()
                places += [rdd.id(), place]
                self._java.leaf(rdd, each.schema).createOrReplaceTempView(name)
            frame = self._session.sql(renamed(shape[0], place_names(len(names)), names))
            execution, schema = frame._jdf.queryExecution(), frame.schema
            if execution.analyzed().containsPattern(self._java.current_like):
                return None
            plan = without_exchanges(execution.executedPlan(), self._session)
        finally:
            for name in names:
                drop_view(self._session, name)
        if not _can_be_kept(plan):
            return None
        kept = PhysicalPlan(next(self._numbers), schema)
        self._java.plans.keep(kept.number, plan, empty_frame(self._session, schema)._jdf, " ".join(map(str, places)))
        return kept

    def _enter(self, name: str, rows: pa.Table, schema: StructType) -> None:
        batch = typed_rows(rows.combine_chunks(), schema).to_batches()[0]
        self._java.plans.enter(name, batch.serialize().to_pybytes(), schema.json())


class _Java:
    """Spark's own classes, looked up once."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._session = session._jsparkSession
        execution, catalyst = jvm.org.apache.spark.sql.execution, jvm.org.apache.spark.sql.catalyst
        self._none = _object(jvm.scala, "None$")
        self._nil = _object(jvm.scala.collection.immutable, "Nil$")
        self._single = _object(catalyst.plans.physical, "SinglePartition$")
        self._relation = _object(execution, "LogicalRDD$")
        self._dataset = _object(jvm.org.apache.spark.sql.classic, "Dataset$")
        self._activate = jvm.org.apache.spark.sql.SparkSession.setActiveSession
        self._list = jvm.java.util.ArrayList
        self._some = jvm.scala.Some
        self._spark = session
        self._active = threading.local()
        self.current_like = catalyst.trees.TreePattern.CURRENT_LIKE()
        self._parallelize = session.sparkContext._jsc.parallelize
        # To compile takes about as long as opening a session: whoever opens a warehouse does not wait for it.
        self._begun = _COMPILING.submit(lambda: _begun(session))

    @property
    def plans(self) -> JavaObject:
        """The half that runs in Java."""
        return self._begun.result()

    def activate(self) -> None:
        """Plans take their settings from the session that is active in the thread in which they are made."""
        self._activate(self._session)

    def set_properties(self) -> None:
        """Tasks take the session's settings from the thread that starts them."""
        if not getattr(self._active, "has_properties", False):
            for key, value in self._spark.conf.getAll.items():
                if key.startswith("spark.sql."):
                    self._spark.sparkContext.setLocalProperty(key, value)
            self._active.has_properties = True

    def empty_rdd(self) -> JavaObject:
        return self._parallelize(self._list(), 1).rdd()

    def leaf(self, rdd: JavaObject, schema: StructType) -> JavaObject:
        """A frame over an RDD of one partition."""
        empty = empty_frame(self._spark, schema)._jdf.queryExecution().analyzed()
        given = (empty.output(), rdd, self._single, self._nil, False, self._none)
        checkpointed = getattr(self._relation, "apply$default$10")(*given)
        # Spark spreads what may be large: the leaf is said to be as small as nothing.
        small = self._some(empty.stats())
        relation = self._relation.apply(*given, self._session, small, self._none, checkpointed)
        return self._dataset.ofRows(self._session, relation)


_classes: WeakKeyDictionary[object, JavaObject] = WeakKeyDictionary()
_compiling = threading.Lock()
_COMPILING = DaemonThreads("spark-compile")


def _begun(session: SparkSession) -> JavaObject:
    """The half of a session's plans that runs in Java; its class is compiled there, once: Py4J knows classes by their names."""
    jvm: Any = session._jvm
    with _compiling:
        if jvm not in _classes:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(files("headgate.runtime.spark").joinpath("KeptPlans.java").read_text("utf-8"))
            _classes[jvm] = compiler.getClassLoader().loadClass("headgate.KeptPlans")
        found = _classes[jvm].newInstance()
    found.begin(session._jsparkSession, _SEPARATOR)
    return found


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, name), "MODULE$")


def _can_be_kept(plan: JavaObject) -> bool:
    """Whether all of it is computed anew where its leaves are replaced, by one task."""
    if not plan.subqueriesAll().isEmpty():
        return False
    left = [plan]
    while left:
        each = left.pop()
        if any(word in each.nodeName() for word in _FORBIDDEN):
            return False
        children = each.children()
        left += [children.apply(place) for place in range(children.size())]
    return True


def _table(schema: pa.Schema, batches: Sequence[bytes]) -> pa.Table:
    return pa.Table.from_batches(
        [pa.ipc.read_record_batch(pa.py_buffer(batch), schema) for batch in batches], schema=schema
    )
