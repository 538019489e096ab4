"""Taking the project as its files are now, while the warehouse runs: flows that are new, changed or gone, and settings.

Only what changed, and what reads it, is built; everything else goes on answering. A mistake in a file changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headgate.config.settings import Project
from headgate.errors import DefiniteError
from headgate.runtime.defining.building import Definitions
from headgate.runtime.defining.preview import FlowChange, with_differences
from headgate.runtime.engine import Engine
from headgate.scheduling.tuning import SettingChange, Tuning


@dataclass(frozen=True, slots=True)
class Preview:
    """What applying the project's files does."""

    identity: str
    """Another one as soon as something else would be done."""
    flows: tuple[FlowChange, ...]
    """Each after those that it reads; what is archived comes last."""
    untouched: int
    """Flows that go on as they are."""
    settings: tuple[SettingChange, ...]
    applied: bool = False
    """Whether it has been done."""


ApproveOpening = Callable[[Sequence[FlowChange], int, Sequence[SettingChange]], None]
"""Hears which flows opening builds or archives, how many there are, and which changes of settings the project file ends, before that is
done; raises where it is not to be done."""


class Applying:
    """Applies the project's files; one thread at a time."""

    def __init__(self, engine: Engine, tuning: Tuning, load: Callable[[], Project]) -> None:
        """`load` reads the project again."""
        self._engine = engine
        self._tuning = tuning
        self._load = load

    def apply(self, *, dry_run: bool, diff: bool, expected: str | None) -> Preview:
        """Takes the files as they are, unless that would do something else than is `expected`; gives what was to be done."""
        project, engine = self._load(), self._engine
        with engine.defining_flows():
            definitions = engine.defining.plan(files=project.flow_files)
            preview = self._preview(definitions, project)
            if expected is not None and preview.identity != expected:
                raise DefiniteError(
                    "the files, or the warehouse, have changed since the preview",
                    hint="look at what is to be done again: `headgate apply`",
                )
            if diff:
                flows = with_differences(
                    preview.flows, engine.tables, engine.flows, definitions, engine.batches, engine.defining
                )
                preview = replace(preview, flows=flows)
            if dry_run:
                return preview
            engine.defining.take(definitions)
            self._tuning.take_file(project)
        return replace(preview, applied=True)

    def _preview(self, definitions: Definitions, project: Project) -> Preview:
        flows = self._engine.flow_changes(definitions)
        settings = self._tuning.file_changes(project)
        names = {change.name for change in flows}
        untouched = sum(plan.name not in names for plan in definitions.plans)
        done = [(plan.name, plan.fingerprint) for plan in definitions.plans]
        content = repr((done, [(change.name, change.kind) for change in flows], settings))
        return Preview(hashlib.sha256(content.encode()).hexdigest()[:16], flows, untouched, settings)
