"""The ledger read as a whole: which tables, flows and checkpoints count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.delta.changes import NO_JOB, JobId
from headgate.runtime.tables.tables import Checkpoint
from headgate.warehouse.ledger import LedgerEntry

JOB_CLOSED = "job"
SOURCE_TABLE = "source"
FLOW = "flow"
FLOW_ARCHIVED = "archived"
ARRANGEMENT = "arrangement"
CHECKPOINT = "checkpoint"
RESNAPSHOT = "resnapshot"
"""Tables that could not be followed are about to be read whole; jobs before the one that holds that will be forgotten."""
STREAM_MARKED = "stream marked"
"""From here on the stream log of a source has a mark: without one it is damaged."""
STREAM = "stream"
"""What the stream log of a source consists of since its owner opened it (`capture/log_manifest`)."""
PROCEDURE = "procedure"
PROCEDURE_ARCHIVED = "procedure archived"
SETTING = "setting"
"""Someone changed a setting while the warehouse was open, or went back to what the project file says."""
RANGES = "ranges"
"""The bounds of a family of tables; a version that does not know of ranges may leave them aside."""
GAPS = "gaps"
"""Keys of a table, by its path, whose rows were not as of the job of the checkpoint beside it."""
FORGOTTEN = "forgotten"
"""Jobs before the one named cannot be read any more: between them and it the source could not be followed."""


@dataclass(frozen=True, slots=True)
class FlowRecord:
    name: str
    fingerprint: str
    generation: int
    is_versioned: bool
    text: str | None
    """The statement of a flow that a program declared; None for one that a project file holds."""
    is_archived: bool = False
    columns: Mapping[str, Any] | None = None
    """The source's columns that a type 2 dimension was made with."""
    cut: tuple[str, ...] | None = None
    """The results that are stored instead of the whole one (`dataflow/cutting`). A version without cuts builds the whole one."""
    former: tuple[str, ...] = ()
    """Where tables lie that were the flow's before its cut moved: nobody reads them after the next opening."""

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "generation": self.generation,
            "versioned": self.is_versioned,
            "text": self.text,
            "columns": self.columns,
            "cut": None if self.cut is None else list(self.cut),
            "former": list(self.former),
        }


@dataclass(frozen=True, slots=True)
class ArrangementRecord:
    table: str
    by: tuple[str, ...]
    columns: frozenset[str]
    path: str

    def body(self) -> dict[str, Any]:
        return {"table": self.table, "by": list(self.by), "columns": sorted(self.columns), "path": self.path}


@dataclass
class Records:
    sources: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    flows: dict[str, FlowRecord] = field(default_factory=dict)
    arrangements: dict[tuple[str, tuple[str, ...]], ArrangementRecord] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    """By the table's path below the storage."""
    procedures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    archived_procedures: dict[str, int] = field(default_factory=dict)
    """The generation of each procedure that was there once."""
    readable_from: JobId = NO_JOB
    resnapshots: dict[str, frozenset[str]] = field(default_factory=dict)
    """Tables by source that are about to be read whole, or have been since the newest job."""
    ranges: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Range maps by family."""
    streams: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Manifests of the stream logs by source."""
    gaps: dict[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """By the table's path, those that were not closed at its checkpoint."""
    marked: set[str] = field(default_factory=set)
    """Sources whose stream logs have marks."""

    @staticmethod
    def of(entries: Iterable[LedgerEntry]) -> Records:
        records = Records()
        for entry in entries:
            records.take(entry.kind, entry.body)
        return records

    def take(self, kind: str, body: Mapping[str, Any]) -> None:
        """Adds what one entry says; a later entry about the same thing replaces an earlier one."""
        match kind:
            case "source":
                self.sources[body["table"]] = body
            case "flow":
                self.flows[body["name"]] = FlowRecord(
                    body["name"],
                    body["fingerprint"],
                    body["generation"],
                    body["versioned"],
                    body["text"],
                    columns=body.get("columns"),
                    cut=None if body.get("cut") is None else tuple(body["cut"]),
                    former=tuple(body.get("former", ())),
                )
            case "archived":
                self.flows[body["name"]] = replace(self.flows[body["name"]], is_archived=True)
            case "arrangement":
                found = ArrangementRecord(body["table"], tuple(body["by"]), frozenset(body["columns"]), body["path"])
                self.arrangements[found.table, found.by] = found
            case "checkpoint":
                for path, (version, through) in body["tables"].items():
                    self.checkpoints[path] = Checkpoint(version, JobId(through))
            case "resnapshot":
                tables = self.resnapshots.get(body["source"], frozenset())
                self.resnapshots[body["source"]] = tables | frozenset(body["tables"])
            case "stream":
                self.streams[body["source"]] = body
            case "stream marked":
                self.marked.add(body["source"])
            case "gaps":
                self.gaps[body["table"]] = tuple(body["gaps"])
            case "ranges":
                self.ranges[body["family"]] = body
            case "procedure":
                self.procedures[body["name"]] = body
            case "procedure archived":
                self.archived_procedures[body["name"]] = self.procedures.pop(body["name"])["generation"]
            case "forgotten":
                self.readable_from = JobId(body["before"])
                for source in body.get("sources", ()):
                    self.resnapshots.pop(source, None)
            case _:
                pass
