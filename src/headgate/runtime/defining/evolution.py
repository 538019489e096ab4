"""Replicas whose tables at the source have wider types now, once those were read whole: int became bigint, say.

The replica is copied into a table of its own with the new types, as of the job that it has reached, and goes on from there;
flows that read it are made anew. History cannot be made anew, so a table whose history a dimension keeps stays stopped.
One entry of the ledger says all of it, so that a crash leaves either the old or the new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headgate.capture.source import Source
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.flows.replicas import Replicas
from headgate.runtime.tables.records import FLOW, FlowRecord, Records


def take_wider_types(records: Records, replicas: Replicas, flows: FlowSet, sources: Iterable[Source]) -> bool:
    """Replaces the replicas that have become too narrow, while no stage runs; gives whether flows have to be made anew."""
    changed = False
    for source in sources:
        for table, wider in replicas.outgrown(source):
            readers = _readers(records, flows, table)
            if not any(record.is_versioned for record in readers):
                # A flow without the fingerprint of its definition is built again.
                replicas.replace(table, wider, [(FLOW, replace(each, fingerprint="").body()) for each in readers])
                changed = True
    return changed


def _readers(records: Records, flows: FlowSet, table: str) -> list[FlowRecord]:
    """The flows that read a table, or what derives from it."""
    derived, found = {table}, []
    waiting = [record for record in records.flows.values() if not record.is_archived]
    while reading := [record for record in waiting if not derived.isdisjoint(_inputs(flows, record.name))]:
        found += reading
        derived |= {record.name for record in reading}
        waiting = [record for record in waiting if record not in reading]
    return found


def _inputs(flows: FlowSet, flow: str) -> tuple[str, ...]:
    running = flows.find(flow)
    return () if running is None else running.plan.tables_read
