"""Flows at run time: a definition with its tables and the stages that keep them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql.types import AtomicType, StructType, TimestampType

from headgate.config.platforms import SPARK
from headgate.dataflow.accumulators import GROUP
from headgate.dataflow.cutting import Cut, cut_behind, find_places
from headgate.dataflow.demands import Demand, demands
from headgate.dataflow.flow import AutoCdc, Flow, MaterializedView
from headgate.dataflow.graph import Fragment, Node, Scan, kept, scanned_tables
from headgate.dataflow.typed_graph import TypedGraph, typed
from headgate.delta.changes import COPY, NO_JOB, ROW_HASH, SURROGATE_KEY, JobId
from headgate.errors import FlowError
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.definitions import fingerprint
from headgate.runtime.flows.range_maps import own_range_column
from headgate.runtime.spark.problems import refusal
from headgate.runtime.stages.dimension_stage import DimensionStage, event_log
from headgate.runtime.stages.replica_stage import ReplicaStage
from headgate.runtime.stages.stage import Stage, tables_of
from headgate.runtime.stages.state_stage import StateStage
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.catalog import TableEntry, WarehouseCatalog, versions_hidden
from headgate.runtime.tables.stored import StoredTable
from headgate.runtime.tables.tables import INTERNAL, Checkpoint, Tables
from headgate.sql.lower import checked_names, lower_view, named_places, view_of
from headgate.sql.names import did_you_mean, substituted
from headgate.sql.positions import SyntaxProblem
from headgate.sql.references import TableReference, TableText, read_tables
from headgate.sql.relations import UnknownTableInFlow
from headgate.sql.statements import ADVISE, PLACE, RANGE_COLUMN, CreateView
from headgate.sql.uniqueness import unique_keys
from headgate.warehouse.spark_errors import reason_of
from headgate.warehouse.spec import TableSpec

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class ViewPlan:
    """An incremental result that is stored: a view's own, or one that its fragment reads."""

    table: str
    graph: TypedGraph
    spec: TableSpec
    state_specs: tuple[TableSpec, ...]


@dataclass(frozen=True)
class FlowPlan:
    """A definition made ready: types, keys, tables; nothing is open yet."""

    flow: Flow
    entry: TableEntry
    fingerprint: str
    views: tuple[ViewPlan, ...] = ()
    dimension: TableSpec | None = None
    events: TableSpec | None = None
    """The log of a dimension whose versions a column orders."""
    definition: str = ""
    """Of the flow without a cut: equal for plans that give the same rows."""
    cut: Cut | None = None
    """The results that are stored instead of the whole one, as advised; empty for none."""
    uncut: TypedGraph | None = None
    """The graph of a view that is, or without its cut would be, kept incrementally."""

    @property
    def name(self) -> str:
        return self.flow.name

    @cached_property
    def tables_read(self) -> tuple[str, ...]:
        if isinstance(self.flow, AutoCdc):
            return (self.flow.source,)
        result = self.flow.result
        nodes = [node for _, node in result.inputs] if isinstance(result, Fragment) else [result]
        return tuple(dict.fromkeys(table for node in nodes for table in scanned_tables(node)))

    @property
    def read_when_asked(self) -> tuple[str, ...]:
        """The tables that its fragment reads as they are."""
        inputs = self.fragment.inputs if self.fragment is not None else ()
        return tuple(node.table for _, node in inputs if isinstance(node, Scan))

    @property
    def fragment(self) -> Fragment | None:
        if isinstance(self.flow, MaterializedView) and isinstance(self.flow.result, Fragment):
            return self.flow.result
        return None


@dataclass
class RunningFlow:
    plan: FlowPlan
    generation: int
    stages: list[Stage]
    demands: frozenset[Demand] = field(default_factory=frozenset)
    state_stages: list[StateStage] = field(default_factory=list)
    """Keep what the stages read of aggregates that do not have their ranges; before them."""
    built_at: JobId = NO_JOB
    """The job, if it was built since the warehouse was opened."""

    @property
    def since(self) -> JobId:
        """The first job that it has; what is run when it is read has those that its tables have."""
        return self.built_at if self.stages else NO_JOB

    def tables(self) -> Iterator[StoredTable]:
        for stage in self.all_stages:
            yield from tables_of(stage)

    @property
    def all_stages(self) -> list[Stage]:
        """Each comes after those that it reads."""
        return [*self.state_stages, *self.stages]


@dataclass
class KnownView:
    """What was found out about a view: `flow` and `plan` hold for these entries of the tables that it names."""

    view: CreateView
    tables: tuple[str, ...]
    entries: list[TableEntry | None] | None = None
    flow: MaterializedView | None = None
    plan: FlowPlan | None = None
    cut_plan: FlowPlan | None = None
    """The plan with the cut that was asked for last."""


class Planner:
    """Turns definitions into plans; asks Spark for types, on empty tables.

    A view that a planner `before` planned is planned again only if its text or a table that it names is another one.

    Spark is the judge of what a view's query may be. What it accepts as written, but headgate cannot lower or lowers to
    something that Spark refuses, becomes a fragment of the whole text.
    """

    def __init__(
        self,
        analyses: Analyses,
        catalog: WarehouseCatalog,
        columns_of: Callable[[str], StructType | None],
        before: Planner | None = None,
    ) -> None:
        """`columns_of` gives the source columns that a dimension with history was made with, if it is there already."""
        self._known: dict[str, KnownView] = {}
        self._before = {} if before is None else before._known
        self._analyses = analyses
        self._catalog = catalog
        self._columns_of = columns_of

    def tables_of(self, view: CreateView) -> tuple[str, ...]:
        """The tables that a view's query names."""
        for known in (self._known.get(view.name), self._before.get(view.name)):
            if known is not None and known.view == view:
                break
        else:
            known = KnownView(view, self._read(view).tables)
        self._known[view.name] = known
        return known.tables

    def lower(self, view: CreateView) -> MaterializedView:
        """The view's graph, or its fragment."""
        entries = [self._catalog.find(table) for table in self.tables_of(view)]
        known = self._known[view.name]
        if known.flow is None or known.entries != entries:
            known = self._known[view.name] = KnownView(view, known.tables, entries, self._lowered(view))
        assert known.flow is not None
        return known.flow

    def _lowered(self, view: CreateView) -> MaterializedView:
        try:
            return lower_view(view, self._catalog)
        except SyntaxProblem:
            return self._as_written(view, "only Spark's own parser reads it")
        except FlowError as problem:
            return self._as_written(view, problem.what, problem)
        except Exception:
            # A mistake of headgate's own must not refuse what Spark accepts.
            _LOGGER.info("flow %s cannot be lowered", view.name, exc_info=True)
            return self._as_written(view, "headgate cannot make an incremental form of it")

    def plan(self, flow: Flow, inputs: Mapping[str, str], cut: Cut | None = None) -> FlowPlan:
        """Plans one flow; `inputs` are the fingerprints of the flows that it may read.

        A cut that the flow does not have (any more), or cannot be made, leaves it whole.
        """
        if isinstance(flow, AutoCdc):
            return self._dimension(flow)
        known = self._known.get(flow.name)
        plan = known.plan if known is not None and known.flow is flow else None
        if plan is None:
            plan = self._judged(flow)
            _check_ranges(plan, flow)
            if known is not None and known.flow is flow:
                known.plan = plan
        read = [f"{table}={inputs[table]}" for table in plan.tables_read if table in inputs]
        definition = fingerprint(plan.flow, plan.entry.schema.simpleString(), *read)
        cut_plan = None if cut is None else self._cut(plan, cut, known)
        if cut_plan is not None:
            made = fingerprint(cut_plan.flow, cut_plan.entry.schema.simpleString(), definition)
            return replace(cut_plan, fingerprint=made, definition=definition)
        return replace(plan, fingerprint=definition, definition=definition)

    def _cut(self, plan: FlowPlan, cut: Cut, known: KnownView | None) -> FlowPlan | None:
        """The plan with stored results behind these operators instead of its whole one; None where that cannot be."""
        if known is not None and known.cut_plan is not None and known.plan is plan and known.cut_plan.cut == cut:
            return known.cut_plan
        flow, graph = plan.flow, plan.uncut
        if graph is None or not isinstance(flow, MaterializedView) or why_whole(flow) is not None:
            return None
        places = find_places(graph.root, cut)
        if places is None:
            return None
        fragment = cut_behind(graph, flow.outputs, places, "as advised, this part runs when it is read")
        try:
            found = self._view(replace(flow, result=fragment))
        except (PySparkException, Py4JJavaError, FlowError) as error:
            _LOGGER.warning("flow %s cannot be cut: %s", flow.name, error)
            return None
        if [field.dataType for field in found.entry.schema] != [field.dataType for field in plan.entry.schema]:
            _LOGGER.warning("flow %s is not cut: its columns would have other types", flow.name)
            return None
        found = replace(found, entry=replace(found.entry, schema=plan.entry.schema), cut=cut, uncut=graph)
        if known is not None:
            known.cut_plan = found
        return found

    def _judged(self, flow: MaterializedView) -> FlowPlan:
        try:
            return self._view(flow)
        except (PySparkException, Py4JJavaError) as error:
            _LOGGER.info("flow %s: its incremental form is refused: %s", flow.name, reason_of(error).words)
            return self._view(self._as_written(_statement(flow), "headgate cannot make an incremental form of it"))

    def plan_as_written(self, plan: FlowPlan, reason: str, inputs: Mapping[str, str]) -> FlowPlan:
        """The plan of a view whose query is run when it is read, and nothing is stored for it."""
        assert isinstance(plan.flow, MaterializedView)
        return self.plan(self._as_written(_statement(plan.flow), reason), inputs)

    def _read(self, view: CreateView) -> TableText:
        try:
            return read_tables(view.query_text, view.query_where, self._catalog.hidden)
        except SyntaxProblem:
            return self._analyses.parser.read(view.query_text, view.query_where, self._catalog.hidden)

    def _as_written(self, view: CreateView, reason: str, problem: FlowError | None = None) -> MaterializedView:
        """The whole text as a fragment if Spark accepts it; else the problem that is known, or what Spark says."""
        read = self._read(view)
        scans: dict[Scan, str] = {}

        def scan_of(table: TableReference) -> Scan:
            entry = self._catalog.find(table.name)
            if entry is None:
                raise problem or UnknownTableInFlow(
                    f"unknown table '{table.name}'",
                    where=view.query_where.within(view.query_text, table.start),
                    hint=did_you_mean(table.name, self._catalog.names()),
                )
            return Scan(entry.name, kept((*entry.schema.names, *table.hidden)))

        def named(table: TableReference) -> str:
            return scans.setdefault(scan_of(table), f"__input_{len(scans) + 1}")

        fragment = Fragment(
            read.replaced(named).text,
            tuple((name, scan) for scan, name in scans.items()),
            (reason,),
            not read.is_repeatable,
        )
        judged = read.replaced(lambda table: self._analyses.table(self._schema_of(scan_of(table))))
        try:
            schema = self._analyses.columns(judged.text)
        except (PySparkException, Py4JJavaError) as error:
            if problem is not None and not isinstance(error, ParseException):
                raise problem from None
            words, where = refusal(error, judged, view.query_where)
            raise FlowError(f"flow {view.name}: {words}", where=where) from None
        places = named_places(view.query_text, view.query_where)
        return view_of(view, fragment, checked_names(schema.names, view.query_where, places))

    def _schema_of(self, scan: Scan) -> StructType:
        entry = self._catalog.find(scan.table)
        assert entry is not None
        return StructType([entry.full_schema[output.sql] for output in scan.outputs])

    def _dimension(self, flow: AutoCdc) -> FlowPlan:
        source = self._catalog.find(flow.source)
        if source is None or "." not in flow.source:
            raise FlowError(
                f"flow {flow.flow} reads {flow.source}, which is not a source table",
                where=flow.where,
                hint=f"AUTO CDC reads source tables: {', '.join(name for name in self._catalog.names() if '.' in name)}",
            )
        columns = self._columns_of(flow.name) if flow.scd_type == 2 else None
        if columns is not None:
            # History cannot be made again: it keeps its columns when the source gets more.
            source = replace(source, schema=columns)
        flow = _spelled(flow, source)
        moment = source.schema[flow.sequence_by].dataType if flow.sequence_by is not None else TimestampType()
        hidden = versions_hidden(moment) if flow.scd_type == 2 else StructType()
        schema = StructType([*source.schema.fields, *hidden.fields])
        key = (*flow.keys, SURROGATE_KEY) if flow.scd_type == 2 else flow.keys
        entry = TableEntry(flow.name, source.schema, hidden, flow.keys, is_versioned=flow.scd_type == 2)
        return FlowPlan(
            flow,
            entry,
            fingerprint(flow, schema.simpleString()),
            dimension=TableSpec(flow.name, schema, key),
            events=event_log(flow, source.schema) if flow.scd_type == 2 and flow.sequence_by is not None else None,
        )

    def _view(self, flow: MaterializedView) -> FlowPlan:
        empty: dict[str, str] = {}

        def table(name: str) -> str:
            if name not in empty:
                entry = self._catalog.find(name)
                assert entry is not None
                empty[name] = self._analyses.table(entry.full_schema)
            return empty[name]

        def analyse(text: str) -> list[dict[str, str]]:
            kinds = [column.dataType for column in self._analyses.columns(text).fields]
            return [
                {field.name: field.dataType.simpleString() for field in kind}
                for kind in kinds
                if isinstance(kind, StructType)
            ]

        if not isinstance(flow.result, Fragment):
            plan = self._stored(flow.name, flow.result, typed(flow.result, table, analyse))
            visible = StructType([plan.spec.schema[name] for name in flow.outputs])
            key = None if ROW_HASH in plan.spec.key else plan.spec.key
            entry = TableEntry(flow.name, visible, StructType(), key)
            return FlowPlan(flow, entry, "", (plan,), uncut=plan.graph)
        failing = [each for each in flow.expectations if each.action == "fail"]
        if failing:
            raise FlowError(
                f"constraint {failing[0].name} cannot fail: {flow.name} is run when it is read ({flow.result.reasons[0]})",
                where=failing[0].where,
                hint="write ON VIOLATION DROP or WARN, or keep the view incremental",
            )
        plans = []
        mapping = {}
        for name, node in flow.result.inputs:
            if isinstance(node, Scan):
                mapping[name] = f"(SELECT {node.select_list} FROM {table(node.table)})"
            else:
                plan = self._stored(f"{flow.name}.{name}", node, typed(node, table, analyse))
                plans.append(plan)
                shown = StructType([plan.spec.schema[column] for column in node.columns])
                mapping[name] = self._analyses.table(shown)
        schema = self._analyses.columns(substituted(flow.result.sql, mapping))
        entry = TableEntry(flow.name, schema, StructType(), None, is_fragment=True)
        return FlowPlan(flow, entry, "", tuple(plans))

    def _stored(self, table: str, node: Node, graph: TypedGraph) -> ViewPlan:
        types = graph.types[node]
        schema = StructType()
        for column in node.columns:
            schema.add(column, self._analyses.type_of(types[column]))
        keys = sorted(unique_keys(node, self._catalog), key=lambda key: (len(key), sorted(key)))
        key = tuple(column for column in node.columns if column in keys[0]) if keys and keys[0] else ()
        if not key:
            schema = schema.add(ROW_HASH, "long").add(COPY, "integer")
            key = (ROW_HASH, COPY)
        states = []
        for number, (state, form) in enumerate(graph.forms.items()):
            state_schema = StructType()
            for column in state.keys:
                state_schema.add(column, self._analyses.type_of(graph.types[state][column]))
            if not state.keys:
                state_schema.add(GROUP, "integer")
            for accumulator in form.accumulators:
                state_schema.add(accumulator.name, self._analyses.type_of(accumulator.type))
            states.append(TableSpec(f"{table}${number}", state_schema, form.keys(state)))
        return ViewPlan(table, graph, TableSpec(table, schema, key), tuple(states))


def why_whole(flow: MaterializedView) -> str | None:
    """Why the flow's whole result has to be stored, if its definition says so."""
    if flow.properties.get(ADVISE) == "never":
        return "its 'advise' is 'never'"
    if flow.properties.get(PLACE, SPARK).casefold() != SPARK:
        return f"it is placed at {flow.properties[PLACE]}"
    failing = next((each.name for each in flow.expectations if each.action == "fail"), None)
    return None if failing is None else f"constraint {failing} has to look at every job's rows"


def _statement(flow: MaterializedView) -> CreateView:
    return CreateView(
        flow.name, flow.text, flow.where, flow.query_where, flow.properties, expectations=flow.expectations
    )


def _spelled(flow: AutoCdc, source: TableEntry) -> AutoCdc:
    """The flow with its source's and columns' names as the source spells them; EXCEPT becomes the columns that remain."""
    known = {name.casefold(): name for name in source.schema.names}

    def column(name: str) -> str:
        if name.casefold() not in known:
            raise FlowError(
                f"{source.name} has no column {name}",
                where=flow.where,
                hint=f"its columns are {', '.join(source.schema.names)}",
            )
        return known[name.casefold()]

    keys = tuple(column(name) for name in flow.keys)
    sequence_by = column(flow.sequence_by) if flow.sequence_by is not None else None
    if sequence_by is not None and not isinstance(source.schema[sequence_by].dataType, AtomicType):
        raise FlowError(
            f"{sequence_by} of {source.name} cannot order versions, it is a {source.schema[sequence_by].dataType.simpleString()}",
            where=flow.where,
            hint="SEQUENCE BY takes a number, a time or a text",
        )
    track = tuple(column(name) for name in flow.track) if flow.track is not None else None
    if flow.track_except:
        left_out = {*keys, sequence_by, *(column(name) for name in flow.track_except)}
        track = tuple(name for name in source.schema.names if name not in left_out)
    return replace(flow, source=source.name, keys=keys, sequence_by=sequence_by, track=track, track_except=())


def open_flow(
    plan: FlowPlan,
    generation: int,
    tables: Tables,
    by_name: Mapping[str, StoredTable],
    checkpoints: Mapping[str, Checkpoint],
    through: JobId,
    replica: Callable[[str], ReplicaStage],
    newest_commit_at: Callable[[JobId], datetime | None],
) -> RunningFlow:
    """Opens the flow's tables at their checkpoints (new ones empty, at job `through`) and makes its stages, which read the
    tables that have these names when they run."""

    def opened(path: str, spec: TableSpec) -> StoredTable:
        return tables.open(path, spec, checkpoints.get(path), through)

    if plan.dimension is not None:
        assert isinstance(plan.flow, AutoCdc)
        target = opened(table_path(plan.name, generation), plan.dimension)
        log = None
        if plan.events is not None:
            log = opened(f"{INTERNAL}/states/{table_path(plan.name, generation)}/events", plan.events)
        return RunningFlow(plan, generation, [DimensionStage(plan.flow, replica(plan.flow.source), target, log)])
    stages: list[Stage] = []
    wanted: set[Demand] = set()
    for view in plan.views:
        states = {
            node: opened(f"{INTERNAL}/states/{table_path(view.table, generation)}/{number}", spec)
            for number, (node, spec) in enumerate(zip(view.graph.states, view.state_specs, strict=True))
        }
        path = table_path(view.table, generation)
        target = opened(path if plan.fragment is None else f"{INTERNAL}/inputs/{path}", view.spec)
        expectations = plan.flow.expectations if plan.fragment is None else ()
        stages.append(ViewStage(plan.name, view.graph, target, states, by_name, newest_commit_at, expectations))
        wanted |= demands(view.graph)
    return RunningFlow(plan, generation, stages, frozenset(wanted))


def _check_ranges(plan: FlowPlan, flow: MaterializedView) -> None:
    column = flow.properties.get(RANGE_COLUMN)
    if column is None:
        return
    if plan.fragment is not None:
        raise FlowError(
            f"{flow.name} cannot have ranges: it is run when it is read, and nothing of it is stored",
            where=flow.where,
            hint=f"leave '{RANGE_COLUMN}' out; `headgate explain` tells why it is not kept",
        )
    own_range_column(next(view.spec for view in plan.views if view.table == plan.name), column, flow.where)


def table_path(name: str, generation: int) -> str:
    """Where a flow's table lies: its name, from the second definition on with its number."""
    return name if generation == 1 else f"{name}.{generation}"
