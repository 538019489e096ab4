"""Values to look up as a table has them: which columns of its order they give, and in the table's types."""

from __future__ import annotations

import pyarrow as pa

from headgate.warehouse.spec import TableSpec


def usable_prefix(sort: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a sort order begins with, as far as they are among these."""
    prefix: list[str] = []
    for column in sort:
        if column not in columns:
            break
        prefix.append(column)
    return tuple(prefix)


def as_typed(values: pa.Table, columns: tuple[str, ...], prefix: tuple[str, ...], spec: TableSpec) -> pa.Table | None:
    """The values of the prefix columns in the table's types, or None when equality could mean something else."""
    arrays = []
    for column in prefix:
        wanted = spec.arrow_schema.field(column).type
        array = values.column(columns.index(column))
        if array.type != wanted:
            if not (pa.types.is_null(array.type) or (pa.types.is_integer(array.type) and pa.types.is_integer(wanted))):
                return None
            try:
                array = array.cast(wanted)
            except pa.ArrowInvalid:
                return None
        arrays.append(array)
    return pa.table(arrays, names=list(prefix))
