"""A file of records for people, one a line, the latest last; nothing rests on it.

NAME.jsonl          its owner's eyes only
NAME.before.jsonl   what was there when that file had become too large
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headgate.capture.durable import full_disk_is_named

FILE_BYTES = 2 << 20
"""Size at which a file makes room for a new one."""


class JsonLines:
    """One thread uses it."""

    def __init__(self, folder: Path, name: str, file_bytes: int = FILE_BYTES) -> None:
        self._file = folder / f"{name}.jsonl"
        self._before = folder / f"{name}.before.jsonl"
        self._file_bytes = file_bytes

    def read(self, limit: int) -> Iterator[Any]:
        """The latest, in order; what a crash has cut short is left out."""
        lines: deque[bytes] = deque(maxlen=limit)
        for file in (self._before, self._file):
            if file.exists():
                lines.extend(file.read_bytes().splitlines())
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def append(self, records: Iterable[object]) -> None:
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with full_disk_is_named(self._file):
            descriptor = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                size = file.tell()
                # A crash may have cut the last line short.
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                file.write((b"\n" if torn else b"") + text.encode())
                size = file.tell()
            if size > self._file_bytes:
                self._file.replace(self._before)
