"""A warehouse without Spark, whose answers a test scripts: what is told here is the service's own behaviour."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.config.service import ServiceSettings
from headgate.errors import Cancelled, DefiniteError
from headgate.runtime.spark.partitions import AnswerPart, Batches, ReadLimit
from headgate.scheduling.bound import Bound
from headgate.scheduling.receipt import Receipt, Waited
from headgate.scheduling.warehouse import Warehouse
from headgate.sql.tail import FreshnessClause

AT = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
BOUND = Bound(timedelta(0), None, "fail")
RECEIPT = Receipt(BOUND, AT, AT, 7, waited=Waited(0.01, 0.0, 0.2, 0.03), decision="scripted")


def batches_of(rows: pa.Table, limit: ReadLimit) -> Batches:
    """Rows as one partition that Spark gave."""
    return Batches(rows.schema, [AnswerPart(rows.num_rows, rows.nbytes, rows)], limit.bytes)


Script = Callable[["ScriptedSession", str], pa.Table | Batches]


class ScriptedAnswer:
    def __init__(self, owner: ScriptedWarehouse, rows: pa.Table | Batches, receipt: Receipt | None) -> None:
        self._owner = owner
        self._rows = rows
        self._receipt = receipt
        self.schema = from_arrow_schema(rows.schema)

    @property
    def receipt(self) -> Receipt:
        if self._receipt is None:
            raise DefiniteError("an answer as of a job has no receipt")
        return self._receipt

    def read(self, limit: ReadLimit) -> Batches:
        return self._rows if isinstance(self._rows, Batches) else batches_of(self._rows, limit)

    def __enter__(self) -> ScriptedAnswer:
        self._owner.open_answers += 1
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._owner.open_answers -= 1


class ScriptedSession:
    """One reader; `wait` is what a query does that waits for its snapshot."""

    def __init__(self, owner: ScriptedWarehouse) -> None:
        self._owner = owner
        self._cancelled = threading.Event()
        self.asked: list[str] = []

    def sql(self, text: str, job: int | None = None, **bound: Any) -> ScriptedAnswer:
        self.asked.append(text)
        self._owner.bounds.append(bound)
        rows = self._owner.script(self, text)
        return ScriptedAnswer(self._owner, rows, None if job is not None else self._owner.receipt)

    def query(self, text: str, tail: FreshnessClause) -> ScriptedAnswer:
        return self.sql(text)

    def wait(self) -> None:
        self._owner.waiting.release()
        if self._cancelled.wait(30):
            self._owner.cancelled += 1
            raise Cancelled("the query was cancelled")

    def cancel(self) -> None:
        self._cancelled.set()

    def say(self, freshness: object) -> None:
        pass


class ScriptedWarehouse:
    def __init__(self, script: Script, receipt: Receipt = RECEIPT, storage: Path = Path("/nowhere")) -> None:
        self.script = script
        self.receipt = receipt
        self.project = SimpleNamespace(name="scripted", storage=str(storage), service=ServiceSettings())
        self.sessions: list[ScriptedSession] = []
        self.bounds: list[dict[str, Any]] = []
        self.spark_lost: str | None = None
        self.open_answers = 0
        self.cancelled = 0
        self.waiting = threading.Semaphore(0)
        """Released by each query that begins to wait."""

    def session(self) -> ScriptedSession:
        self.sessions.append(ScriptedSession(self))
        return self.sessions[-1]

    def column_type(self, table: str, column: str) -> str | None:
        return None

    @property
    def as_warehouse(self) -> Warehouse:
        return cast(Warehouse, self)
