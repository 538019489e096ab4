"""Weighted changes: what every part of headgate hands to the next.

A change is a row of a table with two more columns:

    <the row's columns> | __job BIGINT | __weight BIGINT

`__weight` is +1 where the row appeared and -1 where it went (an update is both); `__job` is the maintenance job
it belongs to. A collection at job i is the sum of its changes with `__job <= i`.

Rows of source tables have one more column, `__commit_at`: the commit time of the transaction that made this row
version; its -1 carries the same value. Changes of source tables between stages also carry `__position`, the
transaction's position in its source, because slowly changing dimensions count transactions, not jobs.

Names that begin with two underscores belong to headgate.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NewType

JobId = NewType("JobId", int)

JOB = "__job"
WEIGHT = "__weight"
COMMIT_AT = "__commit_at"
POSITION = "__position"

SURROGATE_KEY = "__sk"
START_AT = "__start_at"
END_AT = "__end_at"

ROW_HASH = "__row"
"""Key of a table without one (a bag): the row's hash and ..."""
COPY = "__copy"
"""... which of its equal copies this is, from 1."""

ROW_NUMBER = "__row_number"
"""Key of a source table without one: its rows are only added, and this grows."""

BEGINNING = datetime(1900, 1, 1, tzinfo=UTC)
"""Commit time of rows that an initial load brought: valid from the beginning of time.

The earliest instant that every reader of a Delta table takes as it is written: Python's datetime in any time zone (year 1 has
no earlier hour), pandas and Arrow in nanoseconds (from 1677), Spark 3, which refuses older instants in files of other writers
because they may follow another calendar, and spreadsheets.
"""

UNKNOWN_MEMBER = -1
"""Surrogate key of a lookup that found no member."""

NO_JOB = JobId(0)
"""The state before the first job: every table is empty."""
