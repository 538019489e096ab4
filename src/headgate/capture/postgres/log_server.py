"""What the log method asks the source's server for, beside the stream: its position, its clock, its slot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headgate.capture.postgres.connection import ClockReading, clock_reading
from headgate.capture.postgres.pgoutput import read_lsn
from headgate.capture.postgres.sessions import Sessions
from headgate.clock import Clock

_SHORT_HEADER, _LONG_HEADER = 24, 40


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the server stood: everything that it acknowledged before `at` lies before `lsn`."""

    at: datetime
    lsn: int
    clock: ClockReading


class LogServer:
    """The server behind some sessions; safe to use from several threads."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        with sessions.borrow("reading the server's settings") as connection:
            row = connection.execute(
                "SELECT current_setting('wal_block_size')::int8, pg_size_bytes(current_setting('wal_segment_size'))"
            ).fetchone()
        assert row is not None
        self._block, self._segment = row

    def standing(self) -> Standing:
        """Reads headgate's clock, then the position up to which WAL was inserted: acknowledged commits may be unwritten."""
        with self._sessions.borrow("asking for the server's position") as connection:
            before = self._clock.now()
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text, clock_timestamp()").fetchone()
            after = self._clock.now()
        assert row is not None
        lsn, source_at = row
        return Standing(before, self._without_header(read_lsn(lsn)), clock_reading(before, source_at, after))

    def nudge(self) -> None:
        """Makes the server write out all WAL that was inserted so far, which it may otherwise put off."""
        with self._sessions.borrow("writing to the server's log") as connection:
            connection.execute(
                "SELECT set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'headgate', '')"
            )

    def _without_header(self, lsn: int) -> int:
        """A position right behind a page's header is that of the page: nothing reaches it before more is inserted."""
        header = _LONG_HEADER if lsn % self._segment == _LONG_HEADER else _SHORT_HEADER
        return lsn - header if lsn % self._block == header else lsn
