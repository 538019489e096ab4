"""What all methods of capture are opened with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Required, TypedDict

from headgate.capture.postgres.sessions import Sessions
from headgate.capture.ranges import LargeLoads
from headgate.capture.source import Progress
from headgate.capture.streamlog import StreamLog
from headgate.clock import Clock


class Options(TypedDict, total=False):
    """How a method is opened, beside where: see `Opening`."""

    log: Required[StreamLog]
    clock: Required[Clock]
    progress: Callable[[Progress], None] | None
    large: LargeLoads | None
    on_whole: Callable[[], None]
    afresh: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a source is and how it is captured; `name` is what the objects at the source are named after."""

    dsn: str = field(repr=False)
    name: str
    log: StreamLog
    clock: Clock
    progress: Callable[[Progress], None] | None = None
    """Hears how far tables are read whole."""
    large: LargeLoads | None = None
    """What reads tables whole that are large."""
    on_whole: Callable[[], None] = lambda: None
    """Is told when no table is left that has to be read whole again: until then, jobs close before that point."""
    afresh: bool = False
    """The remedy when the source no longer has what comes next: forgets what was left there and reads all tables."""

    def sessions(self, opened: Callable[..., None] = lambda connection: None) -> Sessions:
        return Sessions(self.dsn, application=f"headgate {self.name}", opened=opened)
