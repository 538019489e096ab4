"""What can be made again of a warehouse whose tables are damaged.

A view is built again from what it reads, the replica of a database's table is read again from its source, together with all
views above it. A history, and what programs wrote, is nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headgate.capture.memory import MemorySource
from headgate.capture.source import Source
from headgate.errors import DefiniteError
from headgate.runtime.flows.flows import FlowPlan
from headgate.runtime.tables.journal import Entries
from headgate.runtime.tables.records import FLOW, Records

BACKUP = "restore a backup: `headgate restore`"


def fillable(
    table: str, damage: DefiniteError, sources: Mapping[str, Source], records: Records, above: Collection[FlowPlan]
) -> Source:
    """The source that a damaged table can be read from again; raises why there is none."""
    source = sources.get(table.partition(".")[0])
    if table not in records.sources or source is None:
        raise DefiniteError(
            f"{table} cannot be made again: {damage.what}",
            hint=f"{BACKUP}; or make again what it reads, or declare it under another name",
        )
    if isinstance(source, MemorySource):
        raise DefiniteError(
            f"{table} cannot be made again, because programs wrote it: {damage.what}",
            hint=f"{BACKUP}; or give the warehouse up and begin anew: `headgate reset`",
        )
    histories = ", ".join(plan.name for plan in above if plan.entry.is_versioned and table in plan.tables_read)
    if histories:
        raise DefiniteError(
            f"{table} cannot be made again: {histories} keeps its history, which would end there",
            hint=f"{BACKUP}; or remove {histories} from the flow files first",
        )
    return source


def to_build_over(table: str, above: Collection[FlowPlan], records: Records) -> Entries:
    """For the ledger: all flows that derive from a table that begins anew have to be built again."""
    names = {table}
    for plan in above:
        if not names.isdisjoint(plan.tables_read):
            names.add(plan.name)
    return [(FLOW, replace(records.flows[name], fingerprint="").body()) for name in names if name in records.flows]
