"""The relations of PostgreSQL 15's catalogs with their columns, and its types, as that server has them.

`postgres15.json` is made from a server by `REWRITE=1 pytest tests/gateway/test_definitions.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

_DUCKDB = {
    "bool": "BOOLEAN",
    "bytea": "BLOB",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "interval": "INTERVAL",
    "numeric": "DECIMAL(38, 0)",
    "oid": "UINTEGER",
    "timestamptz": "TIMESTAMPTZ",
    "xid": "UINTEGER",
    "int2vector": "SMALLINT[]",
    "oidvector": "UINTEGER[]",
    "_bool": "BOOLEAN[]",
    "_float4": "FLOAT[]",
    "_float8": "DOUBLE[]",
    "_int2": "SMALLINT[]",
    "_oid": "UINTEGER[]",
}


@dataclass(frozen=True, slots=True)
class CatalogRelation:
    schema: str
    name: str
    oid: int
    kind: str
    columns: Mapping[str, str]
    """PostgreSQL's types by name."""

    def duckdb_type(self, column: str) -> str:
        kind = self.columns[column]
        return _DUCKDB.get(kind) or ("VARCHAR[]" if kind.startswith("_") or kind == "anyarray" else "VARCHAR")


@dataclass(frozen=True, slots=True)
class CatalogDefinitions:
    relations: Mapping[tuple[str, str], CatalogRelation]
    types: Sequence[Mapping[str, Any]]
    access_methods: Sequence[Sequence[Any]]
    collations: Sequence[Sequence[Any]]
    procedure_columns: frozenset[str]
    """Columns that name a function: 0 stands for none."""
    vector_columns: frozenset[str]
    """Columns of numbers that are told as one text."""


@lru_cache(maxsize=1)
def definitions() -> CatalogDefinitions:
    found = json.loads(files("headgate.gateway.catalog").joinpath("postgres15.json").read_text("utf-8"))
    relations = {
        (schema, name): CatalogRelation(schema, name, oid, kind, columns)
        for schema, each in found["relations"].items()
        for name, (oid, kind, columns) in each.items()
    }
    types = [dict(zip(found["type_columns"], row, strict=True)) for row in found["types"]]
    named = {column for each in relations.values() for column, kind in each.columns.items() if kind == "regproc"}
    vectors = {
        column
        for each in relations.values()
        for column, kind in each.columns.items()
        if kind in ("int2vector", "oidvector")
    }
    return CatalogDefinitions(
        relations, types, found["access_methods"], found["collations"], frozenset(named), frozenset(vectors)
    )
