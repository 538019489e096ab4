"""The line of tasks on their way: planned in order, read in any order, published in order.

    add ──► waiting ──► take ──► being read ──► put back ──► read ──► next_to_publish ──► published

Not safe to use from several threads at once: the agent holds its lock around every call.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic

from headgate.capture.gears.method import Batch, Range, Task
from headgate.capture.source import SourceFreshness


@dataclass(frozen=True, slots=True)
class Planned(Generic[Range]):
    """A task and what will be captured once it is published."""

    task: Task[Range]
    reaches: SourceFreshness
    took: timedelta
    """Planning it and, once it is read, reading it."""
    taken: bool = False


class TaskLine(Generic[Range, Batch]):
    """Tasks from planning to publication; `captured` is what has been published."""

    def __init__(self, captured: SourceFreshness) -> None:
        self.captured = captured
        self._tasks: OrderedDict[int, Planned[Range]] = OrderedDict()
        self._batches: dict[int, Batch] = {}
        self._publishing = False

    def __len__(self) -> int:
        """All that is on its way."""
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        return sum(not planned.taken for planned in self._tasks.values())

    @property
    def unread(self) -> int:
        """Tasks that wait for a worker or are being read."""
        return len(self._tasks) - len(self._batches)

    @property
    def planned(self) -> SourceFreshness:
        """How far the newest task reaches."""
        return self._newest(list(self._tasks.values()))

    @property
    def reading(self) -> SourceFreshness:
        """How far the newest task reaches that a worker has taken."""
        return self._newest([planned for planned in self._tasks.values() if planned.taken])

    def add(self, task: Task[Range], reaches: SourceFreshness, took: timedelta) -> None:
        self._tasks[task.number] = Planned(task, reaches, took)

    def reach(self, freshness: SourceFreshness) -> None:
        """Nothing is new after the newest task, so that publishing it captures as much as this."""
        if not self._tasks:
            self.captured = _further(self.captured, freshness)
            return
        number, newest = next(reversed(self._tasks.items()))
        self._tasks[number] = replace(newest, reaches=_further(newest.reaches, freshness))

    def take(self) -> Task[Range] | None:
        """The first task that waits, for a worker to read."""
        for number, planned in self._tasks.items():
            if not planned.taken:
                self._tasks[number] = replace(planned, taken=True)
                return planned.task
        return None

    def put_back(self, number: int, batch: Batch, took: timedelta) -> None:
        """A worker has read a task."""
        planned = self._tasks[number]
        self._tasks[number] = replace(planned, took=planned.took + took)
        self._batches[number] = batch

    def next_to_publish(self) -> tuple[int, Batch] | None:
        """The first task's number and batch, for one caller at a time, who must call `published` then."""
        number = next(iter(self._tasks), None)
        if self._publishing or number is None or number not in self._batches:
            return None
        self._publishing = True
        return number, self._batches[number]

    def published(self) -> Planned[Range]:
        """The batch handed out last is in the log."""
        number, planned = self._tasks.popitem(last=False)
        del self._batches[number]
        self.captured = _further(self.captured, planned.reaches)
        self._publishing = False
        return planned

    def _newest(self, tasks: list[Planned[Range]]) -> SourceFreshness:
        return tasks[-1].reaches if tasks else self.captured


def _further(one: SourceFreshness, other: SourceFreshness) -> SourceFreshness:
    return SourceFreshness(max(one.position, other.position), max(one.at, other.at))
