"""How far a capture method has got, on disk next to its stream log: replaced whole, durable on return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headgate.capture.durable import full_disk_is_named, replace_file
from headgate.errors import CorruptWarehouse, Location

Content = Mapping[str, object]


class CursorFile:
    """A small JSON document in the folder of a stream log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "cursor"

    def read(self) -> dict[str, object] | None:
        """What was written last; None before the first time."""
        if not self.path.exists():
            return None
        try:
            content = json.loads(self.path.read_bytes())
        except ValueError as error:
            raise self.damaged(str(error)) from None
        if not isinstance(content, dict):
            raise self.damaged("it is not an object")
        return content

    def write(self, content: Content) -> None:
        with full_disk_is_named(self.path):
            replace_file(self.path, json.dumps(content).encode())

    def damaged(self, why: str) -> CorruptWarehouse:
        return CorruptWarehouse(
            f"this file is damaged: {why}",
            where=Location(str(self.path)),
            hint="restore it from a copy, or read the source afresh",
        )
