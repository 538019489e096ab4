"""Reads the definitions of flows, those of the project's files and those of programs, and plans them; nothing is changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pyspark.sql.types import StructType

from headgate.config.live import LiveProject
from headgate.dataflow.cutting import Cut
from headgate.dataflow.flow import Flow
from headgate.errors import FlowError, Problems, raise_all
from headgate.runtime.defining.building import Declared, Definitions
from headgate.runtime.flows.analyses import Analyses
from headgate.runtime.flows.definitions import each_flow, read_statements, view_statements, without_declared
from headgate.runtime.flows.flows import FlowPlan, Planner
from headgate.runtime.flows.procedure_set import ProcedureSet
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.placing.placement import require_placeable
from headgate.runtime.tables.catalog import WarehouseCatalog
from headgate.runtime.tables.journal import Journal
from headgate.sql.statements import CreateView, Statement

_LOGGER = logging.getLogger(__name__)


@dataclass(eq=False)
class DefinitionReader:
    """Plans flows, in one thread at a time."""

    _settings: LiveProject
    _analyses: Analyses
    _catalog: WarehouseCatalog
    _journal: Journal
    _replicas: Replicas
    _procedures: ProcedureSet
    _planner: Planner | None = field(default=None, init=False)
    """Who planned the flows."""
    _told: str = field(default="", init=False)
    """The flows with two owners that the log tells last."""

    def plan(
        self,
        declared: Declared,
        current: Declared,
        files: Sequence[Path] | None = None,
        cuts: Mapping[str, Cut | None] = MappingProxyType({}),
    ) -> Definitions:
        """The flows of the files as they are now and these of programs, planned; nothing is changed. Raises all mistakes.

        `current` are those of programs so far. `cuts` are those of flows that are to be moved; the others have theirs. That a
        file defines a flow which a program has is a mistake in `files` that are to be taken; otherwise the program's counts, and
        the log and `Definitions.disputed` tell it.
        """
        problems = Problems()
        statements = read_statements(self._settings.current.flow_files if files is None else files, problems)
        disputed = Problems()
        statements = without_declared(statements, declared, current, disputed, problems)
        if files is not None:
            problems += disputed
        elif disputed and (told := "; ".join(str(each) for each in disputed)) != self._told:
            self._told = told
            _LOGGER.error("flows have two owners, and stay with the first: %s", told)
        for name, sql in declared.values():
            with problems.collected():
                statements += view_statements(name, sql)
        catalog = self._given()
        planner = Planner(self._analyses, catalog, self._recorded_columns, self._planner)
        fingerprints: dict[str, str] = {}
        kept = {name: each.cut for name, each in self._journal.records.flows.items() if not each.is_archived} | dict(
            cuts
        )
        whole = self._read_by_others(statements, planner) if any(cut is not None for cut in kept.values()) else set()

        def make(definition: Flow) -> FlowPlan:
            cut = None if definition.name.casefold() in whole else kept.get(definition.name)
            plan = planner.plan(definition, fingerprints, cut)
            self._refuse_changed_history(plan)
            require_placeable(plan, self._settings.current.platforms)
            fingerprints[plan.name] = plan.fingerprint
            catalog.add(plan.entry)
            return plan

        plans = [each.made for each in each_flow(statements, planner, make, problems) if each.made is not None]
        raise_all(problems)
        self._planner = planner
        return Definitions(dict(declared), tuple(plans), planner, fingerprints, tuple(disputed))

    def _read_by_others(self, statements: Iterable[Statement], planner: Planner) -> set[str]:
        """Tables whose changes flows and procedures take, so that all of them have to be stored."""
        read = {stage.procedure.on.casefold() for stage in self._procedures.over_flows()}
        for statement in statements:
            if isinstance(statement, CreateView):
                with suppress(FlowError):
                    read |= {table.casefold() for table in planner.tables_of(statement)}
        return read

    def _given(self) -> WarehouseCatalog:
        """What flows may read besides each other: source tables, damaged ones too, and what procedures make of them."""
        catalog = self._catalog.sources_only()
        for damaged in self._replicas.damaged:
            catalog.add(damaged)
        for stage in self._procedures.over_replicas():
            entry = self._catalog.find(stage.name)
            assert entry is not None
            catalog.add(entry)
        return catalog

    def is_stale(self, plan: FlowPlan) -> bool:
        """Whether a flow has to be built: it is new, or computes in another way than the ledger's."""
        record = self._journal.records.flows.get(plan.name)
        return record is None or record.is_archived or record.fingerprint != plan.fingerprint

    def _recorded_columns(self, flow: str) -> StructType | None:
        record = self._journal.records.flows.get(flow)
        if record is None or record.is_archived or record.columns is None:
            return None
        return StructType.fromJson(dict(record.columns))

    def _refuse_changed_history(self, plan: FlowPlan) -> None:
        record = self._journal.records.flows.get(plan.name)
        if record is None or record.is_archived or not record.is_versioned or record.fingerprint == plan.fingerprint:
            return
        raise FlowError(
            f"the definition of {plan.name} has changed, but its history cannot be made again from current rows",
            where=plan.flow.where,
            hint="give the new definition another name, or remove the flow and open the warehouse once to archive the table",
        )
