"""What sources share whose capture an agent drives: their pace, what is captured, and the common part of their status."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from headgate.capture.gears.agent import Agent
from headgate.capture.gears.status import Status
from headgate.capture.source import SourceFreshness, SourceStatus, TableProblem
from headgate.capture.streamlog import StreamLog
from headgate.config.files import FilesSourceSettings
from headgate.config.gears import GearSettings
from headgate.config.sources import PostgresSourceSettings
from headgate.delta.changes import BEGINNING
from headgate.errors import HeadgateError

PacedSettings = TypeVar("PacedSettings", PostgresSourceSettings, FilesSourceSettings)


class PacedSource(ABC, Generic[PacedSettings]):
    """Has an agent while the source is open; `unopened` says why it is not."""

    def __init__(self, name: str, settings: PacedSettings, log: StreamLog) -> None:
        self.name = name
        self.log = log
        self.unopened: HeadgateError | None = None
        self._settings: PacedSettings = settings
        self._pacing = threading.Lock()
        """Guards pace and agent; held for a moment only."""
        # What a method reads and publishes is between it and the agent.
        self._agent: Agent[Any, Any] | None = None

    @property
    @abstractmethod
    def problems(self) -> Mapping[str, TableProblem]:
        """Tables whose changes cannot be followed any more, and what to do about it."""

    @property
    def pace(self) -> Status | None:
        """What the agent does, its last shifts and measures; None while the source is unopened."""
        return None if self._agent is None else self._agent.status

    @property
    def captured(self) -> SourceFreshness:
        return SourceFreshness(self.log.durable, BEGINNING) if self._agent is None else self._agent.captured

    @property
    def status(self) -> SourceStatus:
        pace = self.pace
        return SourceStatus(
            captured=self.captured,
            log_bytes=self.log.held_bytes,
            log_limit=self.log.limit_bytes,
            problems=self.problems,
            trouble=self.unopened if pace is None else pace.problem,
            gear=None if pace is None else pace.gear,
            reason=None if pace is None else pace.reason,
            waiting=0 if pace is None else pace.waiting,
            queue=self.log.queue,
        )

    def change_pace(self, pace: GearSettings) -> None:
        """Goes on at another pace, at once; a source that is not open begins with it when it is."""
        with self._pacing:
            self._settings = self._settings.model_copy(update={"pace": pace})
            if self._agent is not None:
                self._agent.change(pace.for_method(self._settings.capture))
