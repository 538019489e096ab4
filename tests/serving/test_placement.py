"""What cannot be placed is refused where it is said, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config.project import load_project
from headgate.errors import ConfigError, FlowError
from headgate.runtime.spark.sessions import SparkSessions
from tests.serving.numbers import opened

SOURCE = {"type": "memory", "tables": {"numbers": {"columns": {"id": "bigint"}, "key": ["id"]}}}


@pytest.mark.parametrize(
    ("platforms", "what"),
    [
        ({"spark": {"type": "postgres", "dsn": "x"}}, "spark is the platform that every warehouse has"),
        ({"a": {"type": "mysql", "dsn": "x"}}, "platforms.a.type cannot be 'mysql'"),
        ({"a": {"type": "postgres"}}, "the key platforms.a.dsn is missing"),
        ({"a": {"type": "postgres", "dsn": "x", "schema": "pg_mine"}}, "pg_mine is a schema of PostgreSQL's own"),
        ({"a": {"type": "postgres", "dsn": "x", "scheme": "s"}}, "unknown key platforms.a.scheme"),
    ],
)
def test_a_wrong_platform_is_named(platforms: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as found:
        load_project({"name": "p", "storage": "w", "sources": {"s": SOURCE}, "platforms": platforms})
    assert "'x'" not in str(found.value)


def test_what_cannot_be_placed_is_refused_when_it_is_defined(tmp_path: Path, spark_sessions: SparkSessions) -> None:
    flow = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ({properties}) AS {query};"
    wrong = {
        "which is not a platform of the project (did you mean serving?)": (
            "'place' = 'servng'",
            "SELECT id FROM s.numbers",
        ),
        "PostgreSQL has no type for its column c, array<int>": (
            "'place' = 'serving'",
            "SELECT id, array(a) AS c FROM s.numbers",
        ),
        "v has no column b to index": ("'place' = 'serving', 'indexes' = 'id, b'", "SELECT id FROM s.numbers"),
        "it runs as written when it is read": ("'place' = 'serving'", "SELECT id, rand() AS r FROM s.numbers"),
    }
    with opened(tmp_path, "host=127.0.0.1 port=1", "") as warehouse:
        for what, (properties, query) in wrong.items():
            (tmp_path / "flows/flows.sql").write_text(flow.format(properties=properties, query=query))
            with pytest.raises(FlowError) as found:
                warehouse.apply()
            assert what in str(found.value)
            assert "flows.sql:1" in str(found.value)
        (tmp_path / "flows/flows.sql").write_text(
            flow.format(properties="'place' = 'serving'", query="SELECT id FROM s.numbers")
        )
        warehouse.apply()
        with warehouse.sql("SELECT id FROM v WHERE id = 3") as answer:
            assert answer.receipt.platform == "spark"
            assert answer.receipt.why_platform
        status = warehouse.platforms.status()["serving"]
        assert status.trouble is not None and "Connection refused" in status.trouble.what
