"""The manifest of a backup: which files it has, with sizes and checksums. It is written last, so without it a backup is half.

<folder>/storage/…        ledger, tables and stream logs, laid out as in the storage
<folder>/manifest.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from headgate.capture.durable import replace_file
from headgate.errors import DefiniteError
from headgate.runtime.recovery.pinned import SourceEnd

FORMAT = 1
CONTENT = "storage"
_NAME = "manifest.json"
_AGAIN = "make another backup; this one cannot be restored"


class BackupUnusable(DefiniteError):
    """A backup is half, damaged, or of another format."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    name: str
    """Below the storage."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    format: int
    made_at: datetime
    storage: str
    """What it is a copy of."""
    ledger_version: int
    job: int
    """The newest closed job; 0 when there was none."""
    sources: dict[str, SourceEnd]
    files: tuple[CopiedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def summary(self) -> dict[str, object]:
        """What there is to tell of it, in JSON's types."""
        return {
            "made_at": self.made_at.isoformat(),
            "ledger_version": self.ledger_version,
            "job": self.job,
            "files": len(self.files),
            "bytes": self.bytes,
        }

    def write(self, folder: Path) -> None:
        replace_file(folder / _NAME, json.dumps(_ADAPTER.dump_python(self, mode="json"), indent=1).encode())


_ADAPTER = TypeAdapter(Manifest)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a whole backup."""
    try:
        manifest = _ADAPTER.validate_json((folder / _NAME).read_bytes())
    except FileNotFoundError:
        half = (folder / CONTENT).is_dir()
        what = f"the backup in {folder} is half: its manifest is missing" if half else f"there is no backup in {folder}"
        raise BackupUnusable(what, hint=_AGAIN if half else "give the folder that `backup` wrote to") from None
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"])
        raise BackupUnusable(f"the manifest of the backup in {folder} is damaged: {reason}", hint=_AGAIN) from None
    if manifest.format != FORMAT:
        raise BackupUnusable(
            f"the backup in {folder} has format {manifest.format}, this headgate reads {FORMAT}",
            hint="restore it with the headgate that made it, then open the warehouse with this one",
        )
    for file in manifest.files:
        name = PurePosixPath(file.name)
        if name.is_absolute() or ".." in name.parts:
            raise BackupUnusable(f"the manifest of the backup in {folder} names {file.name}", hint=_AGAIN)
    return manifest


def damaged_file(folder: Path, name: str, reason: str) -> BackupUnusable:
    return BackupUnusable(f"the backup in {folder} is damaged: {name} {reason}", hint=_AGAIN)
