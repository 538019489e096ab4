"""Audit rows of one relation as events, or raw once their table is stopped.

A table's definition cannot change between a write and its note, so the catalog as it is after audit rows were read tells
how they are to be read, unless it was changed since the last look. Rows from before a column was added just lack it.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.capture.postgres.known_tables import KnownTables
from headgate.capture.postgres.pgoutput_raw import raw_name
from headgate.capture.postgres.trigger_rows import TriggerChanges, UnknownColumns, decode_changes, raw_changes
from headgate.errors import DefiniteError


def decode_notes(
    tables: KnownTables, name: str, columns: tuple[str, ...], notes: pa.Table, position: int
) -> tuple[str, TriggerChanges]:
    """The events, under the name that they have in the stream log; `columns` are the relation's, in its order."""
    if name not in tables.problems:
        try:
            return name, decode_changes(notes, columns, tables.fewest[name], tables.rows[name])
        except UnknownColumns as error:
            tables.stop(name, position, str(error))
        except DefiniteError as error:
            tables.stop(name, position, error.what, error.advice)
    return raw_name(name), raw_changes(notes, columns)
