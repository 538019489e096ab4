"""What is to be done about the sources of a restored warehouse, whose stream logs end where the backup was made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headgate.capture.log_manifest import epochs
from headgate.config.files import FilesSourceSettings
from headgate.config.settings import Project
from headgate.config.sources import PostgresSourceSettings
from headgate.errors import HeadgateError
from headgate.remedies import in_words_of, spoken
from headgate.runtime.recovery.pinned import STREAMS, SourceEnd


@dataclass(frozen=True, slots=True)
class RestoredSource:
    """One source of a restored warehouse."""

    name: str
    position: int
    """Its history up to here is in the backup."""
    committed_at: datetime | None
    """When the last transaction of it committed."""
    goes_on: bool | None
    """Whether capture can go on from there; None when nobody could tell."""
    what: str
    remedy: str | None
    """What to do; None when nothing has to be done."""

    def __str__(self) -> str:
        until = "" if self.committed_at is None else f" ({self.committed_at.isoformat(sep=' ', timespec='seconds')})"
        remedy = "" if self.remedy is None else f"; {self.remedy}"
        return f"{self.name}: up to position {self.position}{until}; {self.what}{remedy}"


def advice(name: str, end: SourceEnd, storage: Path, project: Project | None) -> RestoredSource:
    """What to do about a source; with a project, its server is asked."""
    call = "`headgate refresh --full`, which keeps the history in the backup"
    goes_on: bool | None = None
    remedy: str | None = f"open the warehouse, and should it say that the source's history is lost: {call}"
    settings = None if project is None else project.sources.get(name)
    if not end.is_database:
        goes_on, what = True, "what programs committed later is not in the backup"
        remedy = "let them write it again"
    elif project is None:
        what = "whether its server has what follows was not asked"
    elif isinstance(settings, FilesSourceSettings):
        goes_on, what, remedy = True, "files that came later are taken when the warehouse is opened", None
    elif not isinstance(settings, PostgresSourceSettings):
        what, remedy = "the project has no such database", "open the warehouse with the project that it belongs to"
    else:
        try:
            lost = _lost(project.name, name, settings, end, storage)
            goes_on = lost is None
            what = "its server has all that follows" if lost is None else lost
            remedy = None if lost is None else f"open the warehouse, then {call}"
        except HeadgateError as error:
            what = f"its server could not be asked: {error.what}"
    told = None if remedy is None else in_words_of(spoken(), remedy)
    return RestoredSource(name, end.position, end.committed_at, goes_on, what, told)


def _lost(project: str, name: str, settings: PostgresSourceSettings, end: SourceEnd, storage: Path) -> str | None:
    """Why the server no longer has what follows; None when it has."""
    from headgate.capture.postgres.problems import SourceHistoryLost
    from headgate.capture.postgres.restored import require_history
    from headgate.capture.postgres.slot import slot_name

    home = storage / STREAMS / name
    folder = home / str(epochs(home)[-1])
    try:
        require_history(slot_name(project, name), settings, folder, end.position)
    except SourceHistoryLost as error:
        return error.what
    return None
