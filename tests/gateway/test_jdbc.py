"""JDBC, from Spark's own Java: rows, prepared statements and what tools ask of the metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.gateway.serving import Shop

DRIVER = Path("/usr/share/java/postgresql.jar")
pytestmark = pytest.mark.skipif(
    not DRIVER.exists(), reason="the JDBC driver is not installed; .ci/run installs it, and fails without it"
)


def rows(found: Any, *columns: str) -> list[tuple[Any, ...]]:
    made = []
    while found.next():
        made.append(tuple(found.getString(column) for column in columns))
    return made


def test_jdbc(shop: Shop) -> None:
    session = SparkSession.getActiveSession() or shop.warehouse.spark_for_small_jobs
    jvm, gateway = session._jvm, session.sparkContext._gateway
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(DRIVER)).toURI().toURL()
    loaded = jvm.java.net.URLClassLoader(urls).loadClass("org.postgresql.Driver")
    driver = loaded.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0)).newInstance(
        gateway.new_array(jvm.java.lang.Object, 0)
    )
    connection = driver.connect(f"jdbc:postgresql://127.0.0.1:{shop.port}/shop?user=tester", jvm.java.util.Properties())
    try:
        for _ in range(7):  # from the fifth on the driver asks for binary
            statement = connection.prepareStatement("SELECT name, price, added, tags FROM shop.items WHERE id = ?")
            statement.setLong(1, 1)
            assert rows(statement.executeQuery(), "name", "price", "tags") == [
                ("Ölkanne", "12.50", '{red,"a \\"b\\"",NULL}')
            ]
        told = connection.getMetaData()
        tables = rows(told.getTables(None, "shop", "%", None), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")
        assert ("shop", "items", "TABLE") in tables
        views = rows(told.getTables(None, "public", "%", None), "TABLE_NAME", "TABLE_TYPE")
        assert ("top_items", "MATERIALIZED VIEW") in views
        columns = rows(told.getColumns(None, "shop", "items", "%"), "COLUMN_NAME", "TYPE_NAME")
        assert columns[:4] == [("id", "int8"), ("name", "text"), ("price", "numeric"), ("weight", "float8")]
        assert rows(told.getPrimaryKeys(None, "shop", "items"), "COLUMN_NAME", "KEY_SEQ") == [("id", "1")]
        assert ("shop",) in rows(told.getSchemas(), "TABLE_SCHEM")
        connection.setAutoCommit(False)
        many = connection.prepareStatement("SELECT x FROM generate_series(1, 25) g(x)")
        many.setFetchSize(10)
        assert len(rows(many.executeQuery(), "x")) == 25
        connection.commit()
    finally:
        connection.close()
