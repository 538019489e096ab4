"""How a table is cut into ranges and where they stand, in words: for `explain`, `headgate ranges` and the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.delta.changes import JobId
from headgate.runtime.stages.view_stage import ViewStage
from headgate.runtime.tables.stored import StoredTable


@dataclass(frozen=True, slots=True)
class RangeStatus:
    name: str
    """Its keys."""
    through: JobId
    missing: str | None = None
    """Why nobody can read it at later jobs, if it is given up or not there yet."""

    def __str__(self) -> str:
        return f"{self.name} at job {self.through}" + ("" if self.missing is None else f" (missing: {self.missing})")


@dataclass(frozen=True, slots=True)
class TableRangesStatus:
    """How a table is cut, and where its ranges stand; or why it has one range."""

    table: str
    family: str | None
    column: str | None
    ranges: tuple[RangeStatus, ...]
    why_one: str | None
    scans: tuple[str, ...]
    """Per scan of a view whether it is aligned, and why."""

    def lines(self) -> list[str]:
        """The same to be read."""
        if self.column is None:
            return [f"one range: {self.why_one}"]
        found = [f"ranges of {self.column}: {', '.join(map(str, self.ranges))}"]
        return found + [f"  scan of {scan}" for scan in self.scans]


def range_status(table: StoredTable, stage: ViewStage | None) -> TableRangesStatus:
    division, ranges, missing = table.division, table.range_map, table.missing
    scans: tuple[str, ...] = ()
    if stage is not None and stage.alignment is not None:
        scans = tuple(
            f"{each.scan.table}: {each.reason}"
            + ("" if each.column is None or each.scan.table in stage.aligned else ", but it has no such ranges")
            for each in stage.alignment.scans
        )
        scans += tuple(f"{table.name}: running sums of all ranges" for table in stage.whole_states.values())
    elif stage is not None and division is not None:
        scans = (f"{stage.one_range}: all its ranges come forward together",)
    why = None
    if division is None:
        why = "it is not cut" if stage is None else stage.one_range or "it is not cut"
    return TableRangesStatus(
        table.name,
        None if division is None else division.family,
        None if division is None else division.column,
        tuple(
            RangeStatus(
                ranges.name(number) if division is not None else "all",
                through,
                None if number not in missing else missing[number].reason,
            )
            for number, through in enumerate(table.throughs)
        ),
        why,
        scans,
    )


def range_jobs(tables: Sequence[StoredTable]) -> dict[str, JobId]:
    """The job of each range of the one table, where there are several."""
    if len(tables) != 1 or tables[0].division is None:
        return {}
    return {tables[0].range_map.name(number): job for number, job in enumerate(tables[0].throughs)}


def missing_reasons(tables: Sequence[StoredTable]) -> dict[str, str]:
    """By range why nobody can read it now."""
    return {
        stored.range_map.name(number) if stored.division is not None else "all": gap.reason
        for stored in tables
        for number, gap in stored.missing.items()
    }
