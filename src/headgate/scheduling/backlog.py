"""How far tables lag behind their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from headgate.capture.source import Source
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.reading.reader import Reader
from headgate.runtime.tables.journal import Journal


@dataclass(frozen=True)
class Backlog:
    """What sources have acknowledged and tables have not taken; its methods may be called from any thread."""

    journal: Journal
    flows: FlowSet
    reader: Reader
    sources: Mapping[str, Source]

    def as_of(self, table: str) -> datetime | None:
        """The instant up to which a table has what its sources acknowledged; None for a table of no source.

        While a source is idle, capture alone moves that instant on: it has looked, and nothing is there that the table
        lacks.
        """
        # Read before the logs: what was acknowledged before it is in them.
        captured = {name: self.sources[name].captured.at for name in self.flows.sources_of([table])}
        chain = self.journal.chain
        with self.journal.lock:
            through = self.reader.through(table)
            instants = [
                max(chain.as_of(through, name), at)
                if self.sources[name].log.end <= chain.position(name, through)
                else chain.as_of(through, name)
                for name, at in captured.items()
            ]
        return min(instants, default=None)

    def unprocessed_bytes(self) -> dict[str, int]:
        """Bytes per source that its stream holds, if some table has not taken all of them."""
        return {
            name: source.log.held_bytes if position < source.log.durable else 0
            for (name, source), position in zip(self.sources.items(), self._slowest_positions(), strict=True)
        }

    def waiting_bytes(self) -> dict[str, int]:
        """Bytes per source that the slowest table has not taken."""
        return {
            name: source.log.bytes_after(position)
            for (name, source), position in zip(self.sources.items(), self._slowest_positions(), strict=True)
        }

    def _slowest_positions(self) -> list[int]:
        """By source the position that every table has reached."""
        # What waits for first rows says nothing about what is in the logs.
        waiting = self.flows.waiting_for_rows()
        stages = [stage for stage in self.flows.stages() if stage.name not in waiting]
        through = min(
            (job for stage in stages for job in stage.target.known_throughs), default=self.journal.chain.newest
        )
        return [self.journal.chain.position(name, through) for name in self.sources]
