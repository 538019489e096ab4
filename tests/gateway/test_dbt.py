"""dbt with its PostgreSQL adapter: a project of materialized views is run, tested, documented and changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.gateway.serving import Shop

DBT = Path(sys.executable).parent.parent / "dbt" / "bin" / "dbt"
pytestmark = pytest.mark.skipif(
    not DBT.exists(), reason="dbt is not installed; .ci/run installs it, and fails without it"
)

PROFILE = """
shop:
  target: dev
  outputs:
    dev: {type: postgres, host: 127.0.0.1, port: PORT, user: tester, password: none, dbname: shop, schema: public, threads: 1}
"""
PROJECT = """
name: shop
version: "1.0"
profile: shop
models: {shop: {+materialized: materialized_view}}
flags: {send_anonymous_usage_stats: false}
"""
SOURCES = """
sources: [{name: shop, schema: shop, tables: [{name: items}, {name: sales}]}]
models: [{name: dbt_sold, columns: [{name: item, data_tests: [not_null, unique]}]}]
"""


def test_dbt_runs_a_project(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "profiles.yml").write_text(PROFILE.replace("PORT", str(shop.port)))
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "models" / "sources.yml").write_text(SOURCES)
    sold, named = tmp_path / "models" / "dbt_sold.sql", tmp_path / "models" / "dbt_named.sql"
    sold.write_text(
        "select item, sum(qty)::bigint as qty from {{ source('shop', 'sales') }} where item = 1 group by item"
    )
    named.write_text(
        "{{ config(post_hook='alter materialized view {{ this }} add constraint known expect (name is not null)') }}"
        "select i.name, s.qty from {{ source('shop', 'items') }} i join {{ ref('dbt_sold') }} s on s.item = i.id"
    )

    def dbt(*arguments: str) -> None:
        environment = {**os.environ, "DBT_PROFILES_DIR": str(tmp_path)}
        done = subprocess.run(
            [str(DBT), *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment
        )
        assert done.returncode == 0, done.stdout

    dbt("run")
    dbt("test")
    dbt("docs", "generate")
    catalog = json.loads((tmp_path / "target" / "catalog.json").read_text())
    assert set(catalog["nodes"]["model.shop.dbt_sold"]["columns"]) == {"item", "qty"}
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        before = connection.execute("SELECT name, qty FROM dbt_named").fetchall()
        assert [name for name, _ in before] == ["Ölkanne"]
        assert connection.execute("SELECT known FROM dbt_named__expectations").fetchall() == [(0,)]
        connection.execute("INSERT INTO shop.sales VALUES (7500, 1, 2)")
        dbt("run")  # refreshes
        connection.execute("SET max_staleness = 'any'")
        assert connection.execute("SELECT name, qty FROM dbt_named").fetchall() == [("Ölkanne", before[0][1] + 2)]
        connection.execute("RESET max_staleness")
        connection.execute("INSERT INTO shop.sales VALUES (7501, 1, -2)")
        sold.write_text(sold.read_text().replace("sum(qty)::bigint", "(sum(qty) * 10)::bigint"))
        dbt("run", "--full-refresh")
        assert connection.execute("SELECT qty FROM dbt_named").fetchone() == (before[0][1] * 10,)
        connection.execute("DROP MATERIALIZED VIEW dbt_sold CASCADE")
