"""Views that several threads make at the same time are each known by their own name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headgate.runtime.spark import views as module
from headgate.runtime.spark.views import Views


def test_a_view_that_is_made_while_another_one_is_entered_leaves_both_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: dict[str, int] = {}
    schema, rows = StructType().add("n", "long"), {n: pa.table({"n": [n]}) for n in (1, 2)}
    views: Any = Views(None)  # type: ignore[arg-type]
    inner: list[str] = []

    def as_view(_: object, given: pa.Table, __: StructType, name: str) -> None:
        if not inner:
            inner.append("")
            inner[0] = views.of_rows(rows[2], schema)
        entered[name] = given.column("n")[0].as_py()

    monkeypatch.setattr(module, "as_view", as_view)
    outer = views.of_rows(rows[1], schema)
    assert entered == {outer: 1, inner[0]: 2}
