"""Plans of small queries, kept from job to job: what was planned once is run again over other rows.

A query over rows of the driver is planned over leaves without rows, which Spark can neither fold nor prefer for their size; so the plan
is right for any rows. To run it is to put the rows of the day into its leaves. Everything is one partition: no plan has an
exchange, and the parts of several queries are computed one after the other by one task.

    shape of a text ── planned once ──▶ plan over empty leaves ── leaves replaced ──▶ RDD of Arrow batches
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from headgate.runtime.spark.entered_rows import Entered, Shape, drop_view, fresh_name, place_names, renamed
from headgate.runtime.spark.one_partition import without_exchanges
from headgate.warehouse.local import empty_frame, local_frame

MOST_PLANS = 1_000
MOST_ROWS = 50_000
"""Of one leaf: its rows are part of a task."""
MOST_BYTES = 8 << 20
_SEPARATOR = b"|"
_FORBIDDEN = ("Exchange", "Subquery", "InMemory")


@dataclass(frozen=True)
class PhysicalPlan:
    plan: JavaObject
    leaves: Sequence[tuple[JavaObject, int]]
    """Each leaf of the plan, and the place of its rows in the text."""
    schema: StructType
    frame: DataFrame
    """Without rows, with the columns of the query."""

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return to_arrow_schema(self.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


@dataclass(frozen=True)
class ReadyQuery:
    """A query that is ready to run."""

    kept: PhysicalPlan
    batches: JavaObject
    """An RDD of Arrow batches."""


class KeptPlans:
    """One session's; may be used by many threads."""

    def __init__(self, session: SparkSession) -> None:
        """The session is used for nothing else, and broadcasts nothing."""
        self._session = session
        self._lock = threading.Lock()
        self._plans: OrderedDict[Shape, PhysicalPlan | None] = OrderedDict()
        self._java = _Java(session)

    def ready(self, shape: Shape, entered: Sequence[Entered]) -> ReadyQuery | None:
        """The query over its rows; None if no plan can be kept for it, or the rows are too many."""
        if any(each.rows.num_rows > MOST_ROWS or each.rows.nbytes > MOST_BYTES for each in entered):
            return None
        kept = self._find(shape, entered)
        if kept is None:
            return None
        self._java.activate()
        leaves = {leaf: self._leaf(leaf, entered[place]) for leaf, place in kept.leaves}
        plan = kept.plan.transformUp(self._java.scala_map(leaves))
        return ReadyQuery(kept, kept.frame._jdf.toArrowBatchRdd(plan))

    def enter(self, entered: Entered) -> JavaObject:
        """Brings rows into Spark before a plan needs them."""
        self._java.activate()
        return entered.rdd(self._rdd)

    def collect(self, parts: Sequence[ReadyQuery]) -> list[pa.Table]:
        """The rows of each part, from one Spark job."""
        java = self._java
        java.set_properties()
        rdds = [parts[0].batches]
        for part in parts[1:]:
            rdds += [java.separator, part.batches]
        together = rdds[0] if len(rdds) == 1 else java.one_task(rdds)
        found: list[list[bytes]] = [[]]
        with _load_from_socket(java.serve(together), NoOpSerializer()) as stream:
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
        with self._lock:
            self._plans[shape] = kept
            while len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        return kept

    def _planned(self, shape: Shape, entered: Sequence[Entered]) -> PhysicalPlan | None:
        """The shape's plan over leaves without rows; None if it cannot be kept."""
        names = [fresh_name() for _ in entered]
        places: dict[int, int] = {}
        self._java.activate()
        try:
            for place, (name, each) in enumerate(zip(names, entered, strict=True)):
                rdd = self._java.empty_rdd()
                places[rdd.id()] = place
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
        leaves = [(leaf, places[leaf.rdd().id()]) for leaf in _leaves(plan) if _is_rows(leaf)]
        return PhysicalPlan(plan, leaves, schema, empty_frame(self._session, schema))

    def _leaf(self, leaf: JavaObject, entered: Entered) -> JavaObject:
        return self._java.scan(leaf.output(), entered.rdd(self._rdd))

    def _rdd(self, rows: pa.Table, schema: StructType) -> JavaObject:
        relation = local_frame(self._session, rows, schema)._jdf.queryExecution().analyzed()
        return self._java.local_scan(relation.output(), relation.data())


class _Java:
    """Spark's own classes, looked up once."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._session = session._jsparkSession
        self._context = session.sparkContext._jsc.sc()
        execution, catalyst = jvm.org.apache.spark.sql.execution, jvm.org.apache.spark.sql.catalyst
        self._none = _object(jvm.scala, "None$")
        self._nil = _object(jvm.scala.collection.immutable, "Nil$")
        self._single = _object(catalyst.plans.physical, "SinglePartition$")
        self._relation = _object(execution, "LogicalRDD$")
        self._dataset = _object(jvm.org.apache.spark.sql.classic, "Dataset$")
        self._scan = execution.RDDScanExec
        self._local_scan = execution.LocalTableScanExec
        self._union = jvm.org.apache.spark.rdd.UnionRDD
        self._activate = jvm.org.apache.spark.sql.SparkSession.setActiveSession
        self._map, self._list = jvm.java.util.HashMap, jvm.java.util.ArrayList
        self._to_map, self._to_seq = jvm.PythonUtils.toScalaMap, jvm.PythonUtils.toSeq
        self._some = jvm.scala.Some
        self._spark = session
        self._active = threading.local()
        self.serve = jvm.PythonRDD.collectAndServe
        self.current_like = catalyst.trees.TreePattern.CURRENT_LIKE()
        separators = self._list()
        separators.add(_SEPARATOR)
        self._parallelize = session.sparkContext._jsc.parallelize
        self.separator = self._parallelize(separators, 1).rdd()
        self._tag = self.separator.elementClassTag()

    def activate(self) -> None:
        """Plans take their settings from the session that is active in the thread in which they are made."""
        if not getattr(self._active, "is_set", False):
            self._activate(self._session)
            self._active.is_set = True

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

    def scan(self, output: JavaObject, rdd: JavaObject) -> JavaObject:
        return self._scan(output, rdd, "rows", self._single, self._nil, self._none)

    def local_scan(self, output: JavaObject, rows: JavaObject) -> JavaObject:
        return self._local_scan(output, rows, self._none, False).execute()

    def scala_map(self, found: dict[JavaObject, JavaObject]) -> JavaObject:
        java = self._map()
        for key, value in found.items():
            java.put(key, value)
        return self._to_map(java)

    def one_task(self, rdds: Sequence[JavaObject]) -> JavaObject:
        union = self._union(self._context, self._to_seq(list(rdds)), self._tag)
        return union.coalesce(1, False, self._none, None)


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, name), "MODULE$")


def _leaves(plan: JavaObject) -> list[JavaObject]:
    found = plan.collectLeaves()
    return [found.apply(place) for place in range(found.size())]


def _is_rows(leaf: JavaObject) -> bool:
    return str(leaf.getClass().getSimpleName()) == "RDDScanExec"


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
