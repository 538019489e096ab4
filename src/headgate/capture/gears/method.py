"""What a capture method does for the agent that drives it.

    agent thread      plan()  ──► Task            a half-open range (after, upto] of the source's history
    worker threads    read(task)  ──► Batch       may finish out of order
    one at a time     publish(batch)              in task order: appends whole transactions to the stream log, durable on return

The range of a task is the method's own: WAL positions, snapshots or polls. `Task.upto` is its end on the scale of
`Sample.position`, so that a request knows when what it needs has been published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headgate.capture.gears.throttle import Throttle
from headgate.capture.source import Sample

Range = TypeVar("Range")
Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Task(Generic[Range]):
    """One range to read; ranges of consecutive tasks touch and never overlap."""

    number: int
    upto: int
    """Once published, everything that the source acknowledged at a sample with position <= upto is in the log."""
    range: Range


class Method(Protocol[Range, Batch]):
    """One way to capture one source; its three steps may run in different threads."""

    @property
    def captured(self) -> int:
        """On the scale of `Sample.position`: what is durably in the stream log."""
        ...

    @property
    def throttle(self) -> Throttle:
        """The rests that publishing may take; the agent begins them and ends them."""
        ...

    def sample(self) -> Sample:
        """Headgate's clock, then the source's position; costs the source one cheap statement."""
        ...

    def plan(self, number: int) -> Task[Range] | None:
        """The next range, from where the previous one ended; None when the source has nothing new."""
        ...

    def read(self, task: Task[Range]) -> Batch: ...

    def publish(self, batch: Batch) -> None: ...

    def throughput(self) -> int:
        """Transactions that the source's server has committed so far, by its own count, ours excluded where it can."""
        ...

    def close(self) -> None:
        """Ends connections; called from any thread, also while a step runs, which then raises."""
        ...
