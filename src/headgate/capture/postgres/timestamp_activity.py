"""From which time on a poll must read, so that no transaction is missed.

A row's time is that of its transaction's start, or later, and the row shows when the transaction commits. What is new since
the poll before was therefore written by a transaction that began after it, or by one that was running then and has
ended since. Transactions that still run have nothing to show, so they hold nothing back.

    poll k-1      time, running transactions, snapshot               (in this order: what begins in between is later than the time)
    poll k        time, running transactions, snapshot, those of k-1 that still run
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

MARGIN = timedelta(seconds=1)
"""A transaction's start is taken a moment before the server shows it as running; this is more than any such moment."""

_RUNNING = """
SELECT statement_timestamp(), format('%s %s', pid, xact_start), xact_start FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
UNION ALL SELECT statement_timestamp(), format('prepared %s %s', transaction, gid), NULL FROM pg_prepared_xacts
WHERE database = current_database()
UNION ALL SELECT statement_timestamp(), NULL, NULL
"""


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The source's time, and its transactions that were running then, each with its start; None where that is unknown."""

    at: datetime
    running: Mapping[str, datetime | None]


def read_activity(connection: psycopg.Connection) -> OpenTransactions:
    """What is running; a prepared transaction does not tell when it began."""
    rows = connection.execute(_RUNNING).fetchall()
    return OpenTransactions(rows[0][0], {name: start for _, name, start in rows if name is not None})


def with_prepared(now: OpenTransactions, before: OpenTransactions | None) -> OpenTransactions:
    """The activity with a bound for the start of each prepared transaction: one that is new began as another one, or later."""
    if before is None:
        return now
    earliest = min([before.at, *(start for name, start in before.running.items() if start and not _prepared(name))])
    running = {
        name: before.running.get(name, earliest) if _prepared(name) else start for name, start in now.running.items()
    }
    return OpenTransactions(now.at, running)


def earliest_change(
    before: OpenTransactions, still_running: Collection[str], margin: timedelta = MARGIN
) -> datetime | None:
    """From which time on rows may have become visible since the poll before; None when any may have."""
    earliest = before.at
    for name, start in before.running.items():
        if name not in still_running:
            if start is None:
                return None
            earliest = min(earliest, start)
    return earliest - margin


def _prepared(name: str) -> bool:
    return name.startswith("prepared ")
