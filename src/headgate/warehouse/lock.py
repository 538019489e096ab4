"""One owner per warehouse and machine: a lock file, held while the process lives.

The lock tells a second process at once that it is not wanted; it does not protect anything by itself. What protects
is the ledger's epoch: whoever opens last owns the warehouse, and nobody else can commit any more.
"""

from __future__ import annotations

import fcntl
import json
import os
from datetime import datetime

from headgate.errors import EnvironmentProblem, WarehouseBusy
from headgate.warehouse.storage import Folder

LOCK = "lock"


class OwnerLock:
    """The held lock; `release` gives it up."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, folder: Folder, owner: str, at: datetime, *, takeover: bool) -> OwnerLock:
        """Takes the lock, or says who has it. `takeover` goes on without it when somebody does."""
        if not folder.is_local:
            return cls(None)
        path = folder.file(LOCK)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot write the lock file {path}: {os.strerror(error.errno or 0)}",
                hint="change `storage` to a writable folder, or its permissions",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if takeover:
                return cls(None)
            raise WarehouseBusy(
                f"the warehouse {folder.path} is in use by {holder}",
                hint="close it there, or open with takeover=True if that process is gone for good",
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"owner": owner, "since": at.isoformat()}).encode())
        return cls(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> str:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"{found['owner']} since {found['since']}"
    except (ValueError, KeyError):
        return "another process"
