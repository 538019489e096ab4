"""`headgate.open`: from a project to its open warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.clock import Clock, SystemClock
from headgate.config.project import load_project
from headgate.runtime.sources.progress import OnProgress, default_progress
from headgate.runtime.stages.procedures import Procedure
from headgate.scheduling.applying import ApproveOpening
from headgate.scheduling.warehouse import Warehouse
from headgate.warehouse.store import Step, no_step


def open_warehouse(
    project: str | Path | Mapping[str, object],
    *,
    clock: Clock | None = None,
    takeover: bool = False,
    step: Step = no_step,
    progress: OnProgress | None = None,
    procedures: Sequence[Procedure] = (),
    approve: ApproveOpening = lambda changes, flows, settings: None,
    build_later: bool = False,
) -> Warehouse:
    """Opens the warehouse of a project: a file, its folder, or a dict with the same keys.

    One process owns a warehouse at a time; `takeover` takes it from an owner that is gone for good. `step` is told each
    point of a commit, for tests of what a crash leaves behind. `progress` hears how far a source's tables are read at first
    contact; by default that is a line on the terminal. `procedures` are called with the changes of tables; one that is no
    longer given is archived. `approve` hears which flows are built or archived and which changes of settings end,
    before that is done, and may raise.
    With `build_later` flows that have to be built are built after the warehouse is open: all other tables answer at once, a query over
    such a flow waits for it, the status tells how far that is, and a flow that cannot be built does not keep the warehouse from opening.
    """
    return Warehouse(
        load_project(project),
        clock or SystemClock(),
        takeover,
        step,
        default_progress() if progress is None else progress,
        procedures,
        approve=approve,
        load=lambda: load_project(project),
        build_later=build_later,
    )
