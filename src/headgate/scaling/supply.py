"""Where executors come from."""

from __future__ import annotations

from typing import Protocol


class ExecutorSupply(Protocol):
    """One thread uses it."""

    @property
    def slots(self) -> int:
        """Tasks that one executor can run at a time."""
        ...

    @property
    def most(self) -> int | None:
        """Executors that there can be; None where the cluster's manager decides that."""
        ...

    @property
    def running(self) -> int:
        """Executors that are there, those that are being let go included."""
        ...

    def want(self, count: int) -> None:
        """Asks for so many in all, and lets go of idle ones beyond that; returns at once. Called again and again: an executor
        that was busy may be idle the next time."""
        ...
