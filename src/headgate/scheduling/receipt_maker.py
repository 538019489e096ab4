"""Makes the receipts of queries: what was promised, what was answered, and what that took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from headgate.capture.memory import MemorySource
from headgate.capture.source import Sample, Source
from headgate.delta.changes import JobId
from headgate.ranges.key_set import KeySet
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.tables.journal import Journal
from headgate.scheduling.pending_query import PendingQuery
from headgate.scheduling.receipt import RangesRead, Receipt, SourceReceipt, Waited, cannot_promise


@dataclass
class ReceiptMaker:
    """Its methods may be called from any thread."""

    journal: Journal
    flows: FlowSet
    sources: Mapping[str, Source]
    clocks: dict[str, Sample] = field(default_factory=dict)
    """The latest sample of each source."""

    def receipt(self, query: PendingQuery, job: JobId, as_of: Mapping[str, datetime]) -> Receipt:
        """What the query was promised, what it got, and what that cost so far; reading is to be added."""
        asked = {} if query.closed is None else query.closed.samples
        return Receipt(
            bound=query.bound,
            arrived_at=query.arrived_at,
            data_timestamp=min(as_of.values(), default=None),
            job=job,
            sources=tuple(self._source_receipt(query, job, name, at, name in asked) for name, at in as_of.items()),
            waited=Waited(query.capture, query.queue, query.spark, 0.0),
            rows_processed=query.rows,
            jobs_run=query.jobs,
            shared_cut=query.shared_cut,
            closed_job=query.closed is not None and query.closed.is_new,
            missed=query.missed is not None,
            why_missed=query.missed,
            decision=query.decision,
            notes=(
                *query.notes,
                *(f"the clock of {name} was not compared yet" for name in as_of if not self._clock_known(name)),
            ),
            ranges=self._ranges_read(query, job),
        )

    def _ranges_read(self, query: PendingQuery, job: JobId) -> tuple[RangesRead, ...]:
        found = self.ranges_read(query.tables, query.keys, job, query.brought)
        missing = {} if query.left_out is None else query.left_out.missing
        return tuple(replace(each, missing=missing.get(each.table, ())) for each in found)

    def ranges_read(
        self, tables: tuple[str, ...], keys: Mapping[str, KeySet], job: JobId, brought: Mapping[str, int]
    ) -> tuple[RangesRead, ...]:
        """Per table with ranges, which of them are read at a job, and how many others are behind it."""
        found = []
        with self.journal.lock:
            for stage, ranges in self.flows.needed_ranges(tables, keys):
                table = stage.target
                if table.division is not None:
                    others = [through for number, through in enumerate(table.throughs) if number not in ranges]
                    read = tuple(table.range_map.name(number) for number in sorted(ranges))
                    left = sum(through < job for through in others)
                    found.append(RangesRead(stage.name, table.range_map.count, read, brought.get(stage.name, 0), left))
        return tuple(found)

    def _clock_known(self, source: str) -> bool:
        return source in self.clocks or isinstance(self.sources[source], MemorySource)

    def _source_receipt(self, query: PendingQuery, job: JobId, name: str, at: datetime, asked: bool) -> SourceReceipt:
        clock = self.clocks.get(name)
        none = timedelta(0)
        unknown = none if self._clock_known(name) else None
        return SourceReceipt(
            name,
            max(none, query.arrived_at - at),
            unknown if clock is None else clock.clock_offset,
            unknown if clock is None else clock.clock_error,
            self.journal.chain.position(name, job),
            cannot_promise(self.sources[name].capabilities),
            asked,
        )

    def moved(self, receipt: Receipt, job: JobId) -> Receipt:
        """The receipt of an answer that another job was taken for."""
        if job == receipt.job:
            return receipt
        with self.journal.lock:
            chain = self.journal.chain
            as_of = {source.name: chain.as_of(job, source.name) for source in receipt.sources}
            sources = tuple(
                replace(
                    source,
                    lag=max(timedelta(0), receipt.arrived_at - as_of[source.name]),
                    position=chain.position(source.name, job),
                )
                for source in receipt.sources
            )
        return replace(receipt, job=job, data_timestamp=min(as_of.values(), default=None), sources=sources)
