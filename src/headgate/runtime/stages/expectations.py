"""Constraints whose violation fails a job: looked for among the rows that the job brings, before a table takes them."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.dataflow.flow import Expectation
from headgate.dataflow.relation import column_list
from headgate.delta.changes import COPY, JOB, ROW_HASH, WEIGHT
from headgate.errors import FlowFailed
from headgate.runtime.stages.batch import Batch
from headgate.warehouse.changes import ChangeSet

_SHOWN_LETTERS = 300
"""Of an example."""


def require_expected(flow: str, expectations: Sequence[Expectation], changes: ChangeSet | None, batch: Batch) -> None:
    """Raises for the first job that brings a row which violates one of the constraints."""
    if changes is None or not expectations:
        return
    views = batch.views(changes.rows)
    relation = (
        views.of_rows(changes.table, changes.schema)
        if changes.table is not None and changes.in_memory
        else views.of_frame(changes.frame(views.session))
    )
    columns = [name for name in changes.schema.names if name not in (JOB, WEIGHT, ROW_HASH, COPY)]
    example = f"left(to_json(struct({column_list(columns)}), map('ignoreNullFields', 'false')), {_SHOWN_LETTERS})"
    found, _ = views.collect(
        " UNION ALL ".join(
            f"SELECT {number} AS number, {JOB} AS job, COUNT(*) AS rows, MIN({example}) AS one, MAX({example}) AS other"
            f" FROM {relation} WHERE {WEIGHT} > 0 AND NOT COALESCE(({each.condition}), false) GROUP BY {JOB}"
            for number, each in enumerate(expectations)
        )
    )
    violations = found.sort_by([("job", "ascending"), ("number", "ascending")]).slice(0, 1).to_pylist()
    if not violations:
        return
    first = violations[0]
    violated, rows = expectations[first["number"]], first["rows"]
    examples = " and ".join(dict.fromkeys((first["one"], first["other"])))
    raise FlowFailed(
        f"flow {flow} failed in job {first['job']}: {rows} row{'s violate' if rows > 1 else ' violates'} the constraint"
        f" {violated.name}, EXPECT ({violated.condition}), for example {examples}",
        hint="correct the data or the flow, then `headgate resume`; earlier jobs are complete",
    )
