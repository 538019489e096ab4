"""One owner per warehouse: a lock file, which the system holds for the owner while its process lives.

The lock tells a second process at once that it is not wanted, and commands that change the folder that they have to wait; it does not
protect anything by itself. What protects is the ledger's epoch: whoever opens last owns the warehouse, and nobody else can commit any
more. Whoever takes over puts a lock file of its own in place of the former owner's, so that the file always is the present owner's.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
import uuid
from datetime import datetime
from pathlib import Path

from headgate.errors import EnvironmentProblem, WarehouseBusy
from headgate.warehouse.storage import Folder

LOCK = "lock"
_PATIENCE = 0.25
"""Seconds: longer than whoever only looks (`living_owner`) holds the lock."""


class OwnerLock:
    """The held lock; `release` gives it up."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, folder: Folder, owner: str, at: datetime, *, takeover: bool) -> OwnerLock:
        """Takes the lock, or says who has it. `takeover` takes it from whoever has it."""
        path = folder.file(LOCK)
        until = time.monotonic() + _PATIENCE
        while True:
            descriptor = _open(path)
            if _lock(descriptor, fcntl.LOCK_EX):
                if _is_at(descriptor, path):
                    break
                # Deleted or replaced since it was opened: it is nobody's lock any more.
                os.close(descriptor)
                continue
            holder = _holder(descriptor)
            os.close(descriptor)
            if takeover:
                path, descriptor = _replacement(path)
                break
            if time.monotonic() > until:
                raise WarehouseBusy(
                    f"the warehouse {folder.path} is in use by {holder}",
                    hint="close it there, or end that process; a program can take over what a process that is gone for good had open",
                )
            time.sleep(_PATIENCE / 10)
        user = _user_name(os.geteuid())
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"owner": owner, "since": at.isoformat(), "user": user}).encode())
        if path != folder.file(LOCK):
            Path(path).replace(folder.file(LOCK))
        return cls(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def living_owner(home: Path) -> str | None:
    """Who has the warehouse with this home folder open, whichever user that is; None when nobody has."""
    try:
        descriptor = os.open(home / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise _of_another_user(home / LOCK) from None
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH) else _holder(descriptor)
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        if not os.access(path, os.F_OK):
            raise _unwritable(path, error) from error
        raise _of_another_user(Path(path)) from error
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"cannot write the lock file {path}: {os.strerror(error.errno or 0)}",
        hint="change `storage` to a writable folder, or its permissions",
    )


def _of_another_user(lock: Path) -> EnvironmentProblem:
    try:
        user = _user_name(lock.stat().st_uid)
    except OSError:
        user = "another user"
    return EnvironmentProblem(
        f"the warehouse {lock.parent} belongs to {user}", hint=f"run this as that user: sudo -u {user} headgate …"
    )


def _replacement(path: str) -> tuple[str, int]:
    """A lock file that is not in its place yet, held by this process."""
    fresh = f"{path}.{uuid.uuid4().hex}"
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return fresh, descriptor


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        user = f", user {found['user']}" if found.get("user") else ""
        return f"{found['owner']} since {found['since']}{user}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "another process"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
