"""What changes the rows of a table into those of a query, found by executors."""

from __future__ import annotations

from pyspark.sql.types import StructField

from headgate.dataflow.relation import SIGNS, hidden_number, quoted, same_values
from headgate.delta.changes import JOB, ROW_HASH, WEIGHT, JobId
from headgate.runtime.rows.copies import nested_text
from headgate.warehouse.spec import TableSpec


def difference_text(spec: TableSpec, text: str, stored: str, job: JobId) -> str:
    """What changes the stored rows into those of the query, in one job: rows are compared with that of the same key."""
    same = same_values(
        "n", "o", [(name, name) for name in spec.key], same_types="collate" not in spec.schema.simpleString()
    )
    # Rows of a bag with the same hash and number are the same.
    compared = [] if ROW_HASH in spec.key else [field for field in spec.schema.fields if field.name not in spec.key]
    equal = "".join(f" AND {comparable('n', field)} <=> {comparable('o', field)}" for field in compared)
    outputs = ", ".join(
        f"IF(__sign > 0, n.{quoted(name)}, o.{quoted(name)}) AS {quoted(name)}" for name in spec.columns
    )
    return (
        f"SELECT {outputs}, {hidden_number(job, '__is')} AS {JOB}, __sign AS {WEIGHT} FROM (SELECT *, true AS __is FROM ({text})) n"
        f" FULL OUTER JOIN (SELECT *, true AS __was FROM {stored}) o ON {same} {SIGNS}"
        f" WHERE NOT COALESCE(__is AND __was{equal}, false) AND IF(__sign > 0, __is, __was)"
    )


def comparable(side: str, field: StructField) -> str:
    """A column as something that Spark compares: maps are not."""
    column = f"{side}.{quoted(field.name)}"
    return nested_text(column, field.dataType) if "map<" in field.dataType.simpleString() else column
