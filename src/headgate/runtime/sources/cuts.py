"""Cuts through what the sources have captured: closed jobs, and tables that are read whole where changes were missed."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.capture.source import Sample, Source
from headgate.clock import Clock
from headgate.delta.changes import JobId
from headgate.errors import HeadgateError
from headgate.runtime.signal import Signal
from headgate.runtime.sources.sources import next_job
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import FORGOTTEN, RESNAPSHOT


class Cuts:
    """Closes jobs; its methods may be called from any thread."""

    def __init__(self, sources: Mapping[str, Source], journal: Journal, clock: Clock, signal: Signal) -> None:
        self._sources = sources
        self._journal = journal
        self._clock = clock
        self._signal = signal
        self._rereading: set[str] = set()
        """Sources whose tables are being read whole."""

    def close_job(self, samples: Mapping[str, Sample]) -> JobId:
        """Closes the open job at what is captured, which the samples are; without a new commit, the newest job stays the newest."""
        journal = self._journal
        with journal.lock:
            # Asked before the cut is made, which then holds what was read.
            reread = self.reread()
            job, as_of = next_job(self._sources, journal.chain, samples, self._clock.now())
            if job is not None:
                # Jobs since a table was stopped would show it older than the others.
                journal.close_job(job, [(FORGOTTEN, {"before": job.id, "sources": reread})] if reread else [])
            else:
                journal.chain.confirm(as_of)
            return journal.chain.newest

    def read_whole(self, source: Source, table: str | None = None) -> list[HeadgateError]:
        """Reads a table of a source whole again, or all; gives what went wrong."""
        stopped = [name for name in source.problems if table in (None, name)]
        if stopped:
            # First the intention: after a crash, too, the job that holds what is read forgets those before it.
            self._journal.record([(RESNAPSHOT, {"source": source.name, "tables": stopped})])
        self._rereading.add(source.name)
        try:
            source.resnapshot(None if table is None else [table])
        except HeadgateError as error:
            return [error]
        finally:
            self._rereading.discard(source.name)
            self._signal.notify()
        return []

    def reread(self) -> list[str]:
        """Sources some of whose stopped tables have been read whole since the newest job."""
        found = []
        for name, tables in self._journal.records.resnapshots.items():
            source = self._sources.get(name)
            if source is None or name in self._rereading or source.unopened is not None:
                continue
            if not tables <= source.problems.keys():
                found.append(name)
        return found
