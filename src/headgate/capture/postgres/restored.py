"""Whether a source still has what follows a stream log that was restored: what capture once confirmed, it has let go of."""

from __future__ import annotations

from pathlib import Path

from headgate.capture.postgres import trigger_sql
from headgate.capture.postgres.connection import connect
from headgate.capture.postgres.cursor import CursorFile
from headgate.capture.postgres.log_state import LogState
from headgate.capture.postgres.new_slot import identify
from headgate.capture.postgres.pgoutput import show_lsn
from headgate.capture.postgres.problems import SourceHistoryLost, source_errors
from headgate.capture.postgres.slot import read_slot
from headgate.capture.postgres.trigger_state import TriggerState
from headgate.config.sources import PostgresSourceSettings


def require_history(objects: str, settings: PostgresSourceSettings, folder: Path, position: int) -> None:
    """Raises `SourceHistoryLost` when the source has let go of changes behind this position of the log in a folder.

    `objects` is the name of what capture has made at the server.
    """
    match settings.capture:
        case "log":
            _require_slot(objects, settings.dsn, CursorFile(folder, LogState).read(), position)
        case "trigger":
            _require_audit(objects, settings.dsn, CursorFile(folder, TriggerState).read())
        case "timestamp":
            # Polls go by what the rows themselves say: nothing at the source knows how far they have come.
            pass


def _require_slot(name: str, dsn: str, state: LogState | None, position: int) -> None:
    if state is None:
        return
    with connect(dsn, application=f"headgate {name}", replication=True) as replicating:
        if identify(replicating) != (state.system, state.timeline):
            raise SourceHistoryLost("the server behind the dsn is not the one of the backup")
    with connect(dsn, application=f"headgate {name}") as connection, source_errors("looking at the replication slot"):
        confirmed = read_slot(connection, name).confirmed
    known = max(state.told, position - state.offset)
    if confirmed > known:
        raise SourceHistoryLost(
            f"the replication slot {name} has gone on to {show_lsn(confirmed)}, the backup ends at {show_lsn(known)}"
        )


def _require_audit(name: str, dsn: str, state: TriggerState | None) -> None:
    if state is None:
        return
    with connect(dsn, application=f"headgate {name}") as connection, source_errors("looking at the audit table"):
        found = trigger_sql.read_capture(connection, trigger_sql.Objects(trigger_sql.shortened(name)))
    if found is None or found[0] != state.token:
        raise SourceHistoryLost(f"the audit table of {name} at the source is gone, or another one")
    if found[1] > state.batch:
        raise SourceHistoryLost(
            f"the audit table of {name} at the source was cleared up to batch {found[1]}, the backup ends with batch {state.batch}"
        )
