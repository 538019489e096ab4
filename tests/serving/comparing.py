"""Whether a database holds exactly what the warehouse has at the job that it says it is at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import LiteralString

import psycopg

from headgate import Warehouse
from tests.serving.numbers import PLACED


def check(warehouse: Warehouse, dsn: str) -> int:
    """All placed tables are at one job, each row once; gives the job."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        state = connection.execute("SELECT job FROM shop.__state").fetchone()
        assert state is not None
        for name in PLACED:
            with warehouse.sql(f"SELECT * FROM {name}", state[0]) as answer:
                table = answer.to_arrow()
            columns = ", ".join(f'"{column}"' for column in table.column_names)
            statement: LiteralString = f"SELECT {columns} FROM shop.{name}"  # type: ignore[assignment]
            found = sorted(_row(row) for row in connection.execute(statement).fetchall())
            assert found == sorted(_row(tuple(row.values())) for row in table.to_pylist()), name
    return int(state[0])


def _row(values: tuple[object, ...]) -> str:
    plain = [value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value for value in values]
    return repr([str(value) if isinstance(value, datetime) else value for value in plain])
