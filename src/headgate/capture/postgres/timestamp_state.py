"""What capture by timestamp must remember across a crash beside the stream log, in one small file.

It is written after the poll that it tells of: a crash in between makes the next poll read a little more than is new. Before
tables are read whole it is written as well, so that it is known whether they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.capture.postgres.known_tables import KnownTable
from headgate.capture.postgres.timestamp_activity import OpenTransactions


@dataclass(frozen=True, slots=True)
class TimestampState:
    """The last poll: everything visible in its snapshot is in the stream log."""

    timeline: int
    snapshot: str
    activity: OpenTransactions
    loading: tuple[str, ...]
    """Tables that were being read whole ..."""
    load_position: int
    """... which was done once the log had this position."""
    tables: Mapping[str, KnownTable]
