"""The file that a running service leaves in its storage, so that other commands find it: address, process, token.

Only the user who started the service can read it. One that a crash left behind is known by its process, which is gone.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headgate.cli.options import TOKEN, Place
from headgate.errors import CorruptWarehouse, EnvironmentProblem, Location, WarehouseBusy

_STORAGE = re.compile(r"^storage: +([\w.~-]*/[\w./-]*) *(?:#.*)?(?=\n\S|\s*\Z)", re.MULTILINE)
NOTE = Path("_headgate") / "service.json"


@dataclass(frozen=True, slots=True)
class RunningService:
    """Where a service answers, and the process that it is."""

    url: str
    pid: int
    token: str | None = field(default=None, repr=False)


def storage_of(place: Place) -> str:
    """The project's storage. A plain path is read without loading the project: finding a service has to be quick."""
    with suppress(OSError, ValueError, RuntimeError):
        found = _STORAGE.findall(place.file.read_text(encoding="utf-8"))
        if len(found) == 1:
            return os.path.normpath(place.file.absolute().parent / Path(found[0]).expanduser())
    from headgate.config.project import load_project

    # Quotes, a variable, a URI, or a mistake, which it tells.
    return load_project(place.file).storage


def find_service(storage: str) -> RunningService | None:
    """The service that runs on a storage, if one left its note and its process is there."""
    file = Path(storage) / NOTE
    try:
        service = RunningService(**json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise EnvironmentProblem(
            "the file that names the running service belongs to another user",
            where=Location(str(file)),
            hint=f"run this as that user, or ask the service by its address: --url, with its token in {TOKEN}",
        ) from None
    except (ValueError, TypeError):
        raise CorruptWarehouse(
            "the file that names the running service cannot be read",
            where=Location(str(file)),
            hint="remove the file if no `headgate run` is running",
        ) from None
    return service if _is_alive(service.pid) else None


def require_no_owner(storage: str) -> None:
    """Refuses a storage whose warehouse some process has open, whoever runs that; names it and what to do."""
    home = Path(storage) / NOTE.parent
    if not home.is_dir():
        return
    from headgate.warehouse.lock import LOCK, living_owner

    owner = living_owner(home)
    service = find_service(storage) if owner is not None or not (home / LOCK).exists() else None
    if service is not None:
        raise WarehouseBusy(
            f"a service has the warehouse open: {service.url}, process {service.pid}",
            hint="stop it first: Ctrl-C where it runs, or systemctl stop headgate",
        )
    if owner is not None:
        raise WarehouseBusy(
            f"the warehouse {storage} is in use by {owner}", hint="wait until that process is done, or stop it first"
        )


@contextmanager
def announced(storage: str, service: RunningService) -> Iterator[None]:
    """Leaves the note while the service runs."""
    file = Path(storage) / NOTE
    # A temporary file is readable by its owner alone from the beginning, and readers see all of it or nothing.
    descriptor, written = tempfile.mkstemp(dir=file.parent, prefix=".service-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(asdict(service), stream)
    Path(written).replace(file)
    try:
        yield
    finally:
        # Another service may have taken the storage over meanwhile.
        with suppress(FileNotFoundError, CorruptWarehouse):
            if find_service(storage) == service:
                file.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
