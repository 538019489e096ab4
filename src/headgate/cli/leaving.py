"""What a warehouse has on its storage and at its sources, and how to take it away."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headgate.config.settings import Project
from headgate.config.sources import PostgresSourceSettings
from headgate.errors import ConfigError
from headgate.warehouse.ledger import HOME
from headgate.warehouse.lock import OwnerLock
from headgate.warehouse.storage import Folder


@dataclass(frozen=True, slots=True)
class Holdings:
    """The folders that headgate made in a storage, with the bytes below each; others in it are not headgate's."""

    storage: Path
    folders: tuple[tuple[Path, int], ...]
    others: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class AtSource:
    """What capture has made at a source."""

    source: str
    what: str
    remedy: str
    """How to take it away by hand."""
    remove: Callable[[], None]


def holdings(storage: str) -> Holdings | None:
    """What lies in a storage; None when there is nothing, an error when it is not headgate's."""
    root = Path(storage)
    if not root.exists() or not any(root.iterdir()):
        return None
    if not (root / HOME).is_dir():
        raise ConfigError(
            f"{root} is not a headgate storage: it has no folder {HOME}", hint="correct `storage` in the project file"
        )
    # The ledger last: what is half deleted still tells what it is.
    mine = [path for path in sorted(root.iterdir()) if (path / "_delta_log").is_dir()] + [root / HOME]
    others = tuple(path for path in sorted(root.iterdir()) if path not in mine)
    return Holdings(root, tuple((path, _bytes(path)) for path in mine), others)


def delete(found: Holdings) -> None:
    """Deletes headgate's folders, as the warehouse's owner: `WarehouseBusy` while a process has it open."""
    owner = f"{socket.gethostname()} process {os.getpid()}"
    lock = OwnerLock.take(Folder.at(found.storage).child(HOME), owner, datetime.now(UTC), takeover=False)
    try:
        for folder, _ in found.folders:
            shutil.rmtree(folder)
    finally:
        lock.release()


def at_sources(project: Project) -> list[AtSource]:
    """What capture has left at the project's databases, as the project file names them."""
    found = []
    for name, settings in project.sources.items():
        if isinstance(settings, PostgresSourceSettings) and settings.capture != "timestamp":
            found.append(_at_source(project.name, name, settings))
    return found


def _at_source(project: str, name: str, settings: PostgresSourceSettings) -> AtSource:
    from headgate.capture.postgres.connection import connect
    from headgate.capture.postgres.problems import source_errors
    from headgate.capture.postgres.slot import drop_publication, drop_slot, slot_name
    from headgate.capture.postgres.trigger_sql import Objects, remove, shortened

    objects = slot_name(project, name)

    def remove_slot() -> None:
        with connect(settings.dsn) as connection, source_errors(f"removing the slot {objects}"):
            drop_slot(connection, objects)
            drop_publication(connection, objects)

    def remove_triggers() -> None:
        with connect(settings.dsn) as connection, source_errors(f"removing the triggers of {objects}"):
            remove(connection, Objects(shortened(objects)))

    if settings.capture == "log":
        remedy = f"SELECT pg_drop_replication_slot('{objects}'); DROP PUBLICATION {objects}"
        return AtSource(name, f"the replication slot and the publication {objects}", remedy, remove_slot)
    remedy = f"drop the functions headgate.{shortened(objects)}_note_* with CASCADE, and the table headgate.{shortened(objects)}_changes"
    return AtSource(name, f"the triggers and the audit table of {objects}", remedy, remove_triggers)


def _bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
