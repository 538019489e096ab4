"""The journal: what counts in an open warehouse. It owns the ledger's entries, what they say, and the chain of closed jobs.

A job may hold transactions that are not durable yet. Its entry is then deferred: the job counts at once, and the next
entries that are written make those transactions durable first and take it along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

from headgate.capture.streamlog import StreamLog
from headgate.delta.changes import JobId
from headgate.runtime.tables.jobs import Job, JobChain
from headgate.runtime.tables.records import CHECKPOINT, GAPS, JOB_CLOSED, SETTING, STREAM, Records
from headgate.warehouse.ledger import Ledger, LedgerEntry

REMEMBERED_JOBS = 1_000
"""Closed jobs whose cuts and times can be asked for, at least."""
REMEMBERED_SETTINGS = 1_000
"""Changes of settings that can be asked for, beside those that hold."""

Entries = Sequence[tuple[str, Mapping[str, Any]]]


class Journal:
    """Its methods may be called from any thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        entries = ledger.entries()
        self.records = Records.of(entries)
        self.chain = JobChain()
        for entry in entries:
            if entry.kind == JOB_CLOSED:
                self.chain.add(Job.from_body(entry.body))
        self.lock = RLock()
        """For short steps: closing a job, choosing and pinning a snapshot, letting go of one, adding to the ledger."""
        self.logs: dict[str, StreamLog] = {}
        """The stream log of each source: jobs hold what is in them."""
        self._deferred: list[tuple[str, Mapping[str, Any]]] = []
        self.identity = ledger.identity
        self.verify = ledger.verify
        """Raises `Fenced` when another process has taken over."""

    def close_job(self, job: Job, more: Entries = ()) -> None:
        """Adds a job to the chain; `more` is written to the ledger together with it."""
        with self.lock:
            entries = [(JOB_CLOSED, job.body()), *more]
            if all(self.logs[name].durable >= position for name, position in job.cut.items()):
                self.record(entries)
            else:
                # A producer's commits may be in memory alone: nothing in the ledger may rest on them.
                self._deferred += entries
                self._take(entries)
            self.chain.add(job)

    def record(self, entries: Entries) -> None:
        """Writes entries to the ledger, those that were deferred first; what they say counts from then on."""
        with self.lock:
            for name, log in self.logs.items():
                held = self.chain.position(name, self.chain.newest)
                if log.durable < held:
                    log.sync(held)
            self._ledger.append([*self._deferred, *entries], self._prune)
            self._deferred.clear()
            self._take(entries)

    def settle(self) -> None:
        """Writes what was deferred: afterwards every closed job is durable."""
        with self.lock:
            if self._deferred:
                self.record(())

    def setting_changes(self) -> list[LedgerEntry]:
        """Every change of a setting that is remembered, the latest last."""
        return self._ledger.entries(SETTING)

    def forget_jobs(self, before: JobId) -> None:
        """No table and no source stands at an earlier job; the latest ones are remembered in any case."""
        with self.lock:
            self.chain.forget_before(JobId(min(before, self.chain.newest - REMEMBERED_JOBS)))

    def _take(self, entries: Entries) -> None:
        for kind, body in entries:
            self.records.take(kind, body)

    def _prune(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """The ledger's entries that still count: of jobs and settings those that are remembered, of stream logs and
        of a table's gaps the latest, of checkpoints one with the latest."""
        oldest = self.chain.oldest
        settings = [entry for entry in entries if entry.kind == SETTING]
        holding = {entry.body["name"]: entry.sequence for entry in settings}
        forgotten = {entry.sequence for entry in settings[:-REMEMBERED_SETTINGS]} - set(holding.values())
        streams = {entry.body["source"]: entry.sequence for entry in entries if entry.kind == STREAM}
        gaps = {entry.body["table"]: entry.sequence for entry in entries if entry.kind == GAPS}
        kept = [
            entry
            for entry in entries
            if entry.kind != CHECKPOINT
            and (entry.kind != STREAM or entry.sequence == streams[entry.body["source"]])
            and (entry.kind != GAPS or entry.sequence == gaps[entry.body["table"]])
            and (entry.kind != JOB_CLOSED or entry.body["id"] >= oldest)
            and entry.sequence not in forgotten
        ]
        tables: dict[str, Any] = {}
        for entry in entries:
            if entry.kind == CHECKPOINT:
                tables |= entry.body["tables"]
        if tables:
            kept.append(replace(entries[-1], kind=CHECKPOINT, body={"tables": tables}))
        return kept
