"""How far a capture method has got, on disk next to its stream log: replaced whole, durable on return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from headgate.capture.durable import full_disk_is_named, read_checked, replace_checked
from headgate.capture.postgres.problems import SourceHistoryLost
from headgate.capture.streamlog import StreamLog
from headgate.errors import Location

State = TypeVar("State")


class CursorFile(Generic[State]):
    """A small JSON document in the folder of a stream log: a method's state, a frozen dataclass."""

    def __init__(self, folder: Path, state: type[State]) -> None:
        self.path = folder / "cursor"
        self._format = TypeAdapter(state)

    def read_begun(self, log: StreamLog, *, afresh: bool = False) -> State | None:
        """What was written last; None before the log's first transaction, or when it is damaged and all is read afresh."""
        try:
            state = self.read()
            if state is None and (log.end or log.loss is not None):
                raise self._damaged("it is missing")
            return state
        except SourceHistoryLost:
            if afresh:
                return None
            raise

    def read(self) -> State | None:
        """What was written last; None where there is no such file."""
        if not self.path.exists():
            return None
        try:
            return self._format.validate_python(json.loads(read_checked(self.path)))
        except ValidationError as error:
            raise self._damaged(str(error.errors()[0]["msg"])) from None
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def write(self, state: State) -> None:
        with full_disk_is_named(self.path):
            replace_checked(self.path, json.dumps(self._format.dump_python(state, mode="json")).encode())

    def _damaged(self, why: str) -> SourceHistoryLost:
        return SourceHistoryLost(
            f"the capture position is unknown, because this file is damaged: {why}",
            where=Location(str(self.path)),
        )
