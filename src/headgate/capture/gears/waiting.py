"""Requests that wait, and the outcomes of those that lately did not have to any more.

Not safe to use from several threads at once: the agent holds its lock around every call, and hands outcomes over
with `hand_over` once it has let go of it, because whoever asked may run code of its own then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime

from headgate.capture.gears.requests import Measures, Request, RequestOutcome, measure
from headgate.capture.source import SourceFreshness

Answer = tuple["Future[RequestOutcome]", RequestOutcome]


class WaitingRequests:
    """Requests without an outcome, in order of arrival."""

    def __init__(self, recent: int) -> None:
        self._waiting: dict[Future[RequestOutcome], Request] = {}
        self._recent: deque[RequestOutcome] = deque(maxlen=recent)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(self._waiting.values())

    @property
    def measures(self) -> Measures:
        """Of the recent requests."""
        return measure(self._recent)

    @property
    def deadline(self) -> datetime | None:
        """The earliest one."""
        return min((request.deadline for request in self._waiting.values()), default=None)

    @property
    def needed_position(self) -> int:
        """The furthest that any waiting request needs."""
        return max((request.needed_position or 0 for request in self._waiting.values()), default=0)

    def add(self, request: Request, captured: SourceFreshness) -> Future[RequestOutcome]:
        """The request's future; it has its outcome already when what it needs is captured."""
        future: Future[RequestOutcome] = Future()
        if request.met_by(captured):
            outcome = request.served(captured, request.arrived_at)
            self._recent.append(outcome)
            future.set_result(outcome)
        else:
            self._waiting[future] = request
        return future

    def remove(self, future: Future[RequestOutcome]) -> None:
        self._waiting.pop(future, None)

    def settle(self, captured: SourceFreshness, now: datetime) -> list[Answer]:
        """Takes out the requests that have an outcome now."""
        answers = [
            (future, outcome)
            for future, request in self._waiting.items()
            if (outcome := request.outcome(captured, now)) is not None
        ]
        for future, outcome in answers:
            del self._waiting[future]
            self._recent.append(outcome)
        return answers

    def abandon(self) -> list[Future[RequestOutcome]]:
        """Takes all out, without an outcome."""
        abandoned = list(self._waiting)
        self._waiting.clear()
        return abandoned

    def keep_recent(self, count: int) -> None:
        self._recent = deque(self._recent, maxlen=count)


def hand_over(answers: Iterable[Answer]) -> None:
    for future, outcome in answers:
        if future.set_running_or_notify_cancel():
            future.set_result(outcome)


def hand_over_error(futures: Iterable[Future[RequestOutcome]], error: BaseException) -> None:
    for future in futures:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
