"""`postgres15.json`, the definitions of PostgreSQL's catalogs, is what a PostgreSQL 15 says of itself.

REWRITE=1 pytest tests/gateway/test_definitions.py      writes the file anew
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headgate.gateway.catalog
from headgate.capture.postgres.private_server import PostgresServer, server_binaries

FILE = Path(headgate.gateway.catalog.__file__).parent / "postgres15.json"
OIDS = ("oid", "typelem", "typarray", "typbasetype", "typcollation")
TYPE_COLUMNS = [
    *("oid", "typname", "typlen", "typbyval", "typtype", "typcategory", "typispreferred", "typdelim", "typelem"),
    *("typarray", "typbasetype", "typtypmod", "typndims", "typcollation", "typinput", "typoutput", "typreceive"),
    "typsend",
]
FIRST_UNPINNED = 12_000
"""Below, PostgreSQL's sources say which oid a relation has; from here on every server numbers them anew."""
RELATIONS = """
SELECT n.nspname, c.relname, c.oid::bigint, c.relkind::text, json_object_agg(a.attname, coalesce(b.typname, t.typname) ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
GROUP BY 1, 2, 3, 4 ORDER BY n.nspname DESC, c.relname COLLATE "C"
"""
TYPES = """
SELECT json_build_array({columns}) FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
WHERE t.oid < 10000 AND t.typtype IN ('b', 'p', 'r', 'm') AND coalesce(e.typtype, 'b') <> 'c' ORDER BY t.oid
"""


def definitions_of(connection: psycopg.Connection) -> dict[str, Any]:
    """What `postgres15.json` holds, of a server."""
    relations: dict[str, dict[str, Any]] = {}
    number = FIRST_UNPINNED
    for schema, name, oid, kind, columns in connection.execute(RELATIONS):
        if oid >= FIRST_UNPINNED:
            oid, number = number, number + 1
        relations.setdefault(schema, {})[name] = [oid, kind, columns]
    listed = ", ".join(f"t.{name}::bigint" if name in OIDS else f"t.{name}" for name in TYPE_COLUMNS)
    types = [found for (found,) in connection.execute(TYPES.format(columns=listed))]  # type: ignore[arg-type]
    methods = connection.execute("SELECT oid::bigint, amname, amtype::text FROM pg_am ORDER BY oid").fetchall()
    collations = connection.execute(
        "SELECT oid::bigint, collname FROM pg_collation WHERE oid < 1000 AND collname IN ('C', 'POSIX', 'default') ORDER BY oid"
    ).fetchall()
    return {
        "relations": relations,
        "type_columns": TYPE_COLUMNS,
        "types": types,
        "access_methods": [list(row) for row in methods],
        "collations": [list(row) for row in collations],
    }


def written(definitions: dict[str, Any]) -> str:
    """As JSON with a line per relation and per type."""

    def line(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    schemas = [
        f"  {line(schema)}: {{\n"
        + ",\n".join(f"   {line(name)}: {line(each)}" for name, each in relations.items())
        + "\n  }"
        for schema, relations in definitions["relations"].items()
    ]
    types = ",\n".join(f"  {line(each)}" for each in definitions["types"])
    others = ",\n".join(f' "{name}": {line(definitions[name])}' for name in ("access_methods", "collations"))
    return (
        '{\n "relations": {\n'
        + ",\n".join(schemas)
        + f'\n }},\n "type_columns": {line(definitions["type_columns"])},\n "types": [\n{types}\n ],\n{others}\n}}\n'
    )


@pytest.mark.skipif(
    server_binaries().parent.name != "15",
    reason="only a PostgreSQL 15 can say what the file says",
)
def test_the_definitions_are_those_of_postgresql_15() -> None:
    with PostgresServer() as server, psycopg.connect(server.dsn) as connection:
        text = written(definitions_of(connection))
    if os.environ.get("REWRITE"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text, "run again with REWRITE=1 and look at what changed"
