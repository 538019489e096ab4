"""The rows of the catalogs' relations: what a warehouse has, as PostgreSQL would list it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.gateway.catalog.definitions import definitions
from headgate.gateway.dialect import FLOWS_SCHEMA
from headgate.gateway.types import NAMES, NUMERIC, TEXT, WireColumn, column_of_text

Rows = dict[tuple[str, str], list[dict[str, Any]]]

OWNER = 10
_FIRST_OWN = 16_384
_SCHEMAS = {"pg_catalog": 11, "pg_toast": 99, FLOWS_SCHEMA: 2200, "information_schema": 13_000}
_HEAP, _BTREE = 2, 403
OWN_SCHEMA = "headgate"
FRESHNESS_COLUMNS = (
    ("table_schema", "string"),
    ("table_name", "string"),
    ("kind", "string"),
    ("job", "bigint"),
    ("data_timestamp", "timestamp"),
    ("staleness_seconds", "double"),
)
"""Of headgate.tables, with types as Spark writes them."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table of the warehouse."""

    schema: str
    name: str
    is_flow: bool
    columns: tuple[tuple[str, str], ...]
    """Names, and types as Spark writes them."""
    key: tuple[str, ...]
    definition: str | None = None
    comment: str | None = None
    column_comments: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """All that the catalogs tell; two warehouses with equal contents have equal catalogs."""

    database: str
    tables: tuple[TableRow, ...]
    schemas: tuple[str, ...]
    roles: tuple[str, ...]


def own_oid(*parts: str) -> int:
    """The same whenever the warehouse is opened."""
    return _FIRST_OWN + zlib.crc32("\0".join(parts).encode()) % (1 << 30)


def schema_oid(name: str) -> int:
    return _SCHEMAS.get(name) or own_oid("schema", name)


class Mirror:
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self.rows: Rows = {}
        self._system()
        self._roles()
        for name in dict.fromkeys((*_SCHEMAS, OWN_SCHEMA, *contents.schemas)):
            self._schema(name)
        self._freshness()
        for table in contents.tables:
            self._table(table)
        self._helpers()

    def add(self, relation: str, schema: str = "pg_catalog", **values: Any) -> None:
        self.rows.setdefault((schema, relation), []).append(values)

    def _system(self) -> None:
        known = definitions()
        for relation in known.relations.values():
            self._class(relation.oid, relation.name, relation.schema, relation.kind, len(relation.columns))
        for kind in known.types:
            self.add(
                "pg_type",
                **kind,
                typnamespace=_SCHEMAS["pg_catalog"],
                typowner=OWNER,
                typisdefined=True,
                typalign="i",
                typstorage="p",
            )
        for oid, name, kind in known.access_methods:
            self.add("pg_am", oid=oid, amname=name, amtype=kind)
        for oid, name in known.collations:
            self.add(
                "pg_collation",
                oid=oid,
                collname=name,
                collnamespace=_SCHEMAS["pg_catalog"],
                collowner=OWNER,
                collprovider="d",
                collisdeterministic=True,
                collencoding=-1,
            )
        self.add("pg_tablespace", oid=1663, spcname="pg_default", spcowner=OWNER)
        self.add(
            "pg_database",
            oid=own_oid("database"),
            datname=self._contents.database,
            datdba=OWNER,
            encoding=6,
            datlocprovider="c",
            datallowconn=True,
            datconnlimit=-1,
            dattablespace=1663,
            datcollate="C",
            datctype="C",
        )

    def _roles(self) -> None:
        for place, name in enumerate(dict.fromkeys((self._contents.database, *self._contents.roles))):
            oid = OWNER if place == 0 else own_oid("role", name)
            flags: dict[str, Any] = {
                "rolsuper": False,
                "rolinherit": True,
                "rolcreaterole": False,
                "rolcreatedb": False,
                "rolcanlogin": True,
                "rolreplication": False,
                "rolbypassrls": False,
                "rolconnlimit": -1,
            }
            self.add("pg_roles", oid=oid, rolname=name, **flags)
            self.add("pg_authid", oid=oid, rolname=name, **flags)
            self.add(
                "pg_user",
                usesysid=oid,
                usename=name,
                usecreatedb=False,
                usesuper=False,
                userepl=False,
                usebypassrls=False,
            )

    def _schema(self, name: str) -> None:
        database, owner = self._contents.database, self._contents.database
        self.add("pg_namespace", oid=schema_oid(name), nspname=name, nspowner=OWNER)
        self.add("schemata", "information_schema", catalog_name=database, schema_name=name, schema_owner=owner)

    def _class(self, oid: int, name: str, schema: str, kind: str, width: int, **more: Any) -> None:
        self.add(
            "pg_class",
            **{
                "oid": oid,
                "relname": name,
                "relnamespace": schema_oid(schema),
                "reltype": 0,
                "relowner": OWNER,
                "relam": {"r": _HEAP, "m": _HEAP, "i": _BTREE}.get(kind, 0),
                "reltuples": -1.0,
                "relpersistence": "p",
                "relkind": kind,
                "relnatts": width,
                "relispopulated": True,
                "relreplident": "d",
                **more,
            },
        )

    def _freshness(self) -> None:
        """headgate.tables, a view."""
        table = TableRow(OWN_SCHEMA, "tables", True, FRESHNESS_COLUMNS, ())
        oid = own_oid("table", table.schema, table.name)
        self._class(oid, table.name, table.schema, "v", len(table.columns))
        self.add("pg_views", schemaname=table.schema, viewname=table.name, viewowner=self._contents.database)
        self._listed(table)
        for place, (name, spark) in enumerate(table.columns, 1):
            self._column(table, oid, place, column_of_text(name, spark), None)

    def _listed(self, table: TableRow) -> None:
        """In information_schema; flows are views there, which has no word for materialized ones."""
        of_table = {
            "table_catalog": self._contents.database,
            "table_schema": table.schema,
            "table_name": table.name,
            "is_insertable_into": "NO" if table.is_flow else "YES",
        }
        kind = "VIEW" if table.is_flow else "BASE TABLE"
        self.add("tables", "information_schema", **of_table, table_type=kind, is_typed="NO")
        if table.is_flow:
            about = {"view_definition": table.definition, "check_option": "NONE", "is_updatable": "NO"}
            self.add("views", "information_schema", **of_table, **about)

    def _table(self, table: TableRow) -> None:
        database = self._contents.database
        oid = own_oid("table", table.schema, table.name)
        kind = "m" if table.is_flow else "r"
        self._class(
            oid,
            table.name,
            table.schema,
            kind,
            len(table.columns),
            relhasindex=bool(table.key),
            relhasrules=table.is_flow,
        )
        if table.is_flow:
            self.add(
                "pg_matviews",
                schemaname=table.schema,
                matviewname=table.name,
                matviewowner=database,
                hasindexes=bool(table.key),
                ispopulated=True,
                definition=table.definition,
            )
            self.add(
                "pg_rewrite",
                oid=own_oid("rule", table.schema, table.name),
                rulename="_RETURN",
                ev_class=oid,
                ev_type="1",
                ev_enabled="O",
                is_instead=True,
            )
        else:
            self.add(
                "pg_tables",
                schemaname=table.schema,
                tablename=table.name,
                tableowner=database,
                hasindexes=bool(table.key),
                hasrules=False,
                hastriggers=False,
                rowsecurity=False,
            )
        self._listed(table)
        comments = dict(table.column_comments)
        for place, (name, spark) in enumerate(table.columns, 1):
            self._column(table, oid, place, column_of_text(name, spark), comments.get(name))
        if table.comment is not None:
            self.add("pg_description", objoid=oid, classoid=1259, objsubid=0, description=table.comment)
        self.add(
            "headgate_relations",
            oid=oid,
            definition=table.definition,
            shown=table.name if table.schema == FLOWS_SCHEMA else f"{table.schema}.{table.name}",
        )
        if table.key:
            self._key(table, oid)

    def _column(self, table: TableRow, oid: int, place: int, column: WireColumn, comment: str | None) -> None:
        nullable = column.name not in table.key
        self.add(
            "pg_attribute",
            attrelid=oid,
            attname=column.name,
            atttypid=column.oid,
            attstattarget=-1,
            attlen=column.size,
            attnum=place,
            attndims=int(column.oid not in NAMES),
            attcacheoff=-1,
            atttypmod=column.modifier,
            attnotnull=not nullable,
            attislocal=True,
            attidentity="",
            attgenerated="",
            attcompression="",
            attcollation=100 if column.oid == TEXT else 0,
            attstorage="p",
            attalign="i",
        )
        if comment is not None:
            self.add("pg_description", objoid=oid, classoid=1259, objsubid=place, description=comment)
        digits = column.modifier - 4
        self.add(
            "columns",
            "information_schema",
            table_catalog=self._contents.database,
            table_schema=table.schema,
            table_name=table.name,
            column_name=column.name,
            ordinal_position=place,
            is_nullable="YES" if nullable else "NO",
            data_type=NAMES.get(column.oid, "ARRAY"),
            numeric_precision=digits >> 16 if column.oid == NUMERIC and digits >= 0 else None,
            numeric_scale=digits & 0xFFFF if column.oid == NUMERIC and digits >= 0 else None,
            udt_catalog=self._contents.database,
            udt_schema="pg_catalog",
            udt_name=_type_names().get(column.oid, "text"),
            dtd_identifier=str(place),
            is_self_referencing="NO",
            is_identity="NO",
            is_generated="NEVER",
            is_updatable="NO" if table.is_flow else "YES",
        )

    def _key(self, table: TableRow, oid: int) -> None:
        """A source table's key is its primary key; a flow's is a unique index, as a materialized view can have."""
        names = [name for name, _ in table.columns]
        places = [names.index(name) + 1 for name in table.key]
        index_name = f"{table.name}_{'key' if table.is_flow else 'pkey'}"
        index = own_oid("index", table.schema, table.name)
        listed = ", ".join(f'"{name}"' if not name.islower() else name for name in table.key)
        self._class(index, index_name, table.schema, "i", len(places))
        for place, name in enumerate(table.key, 1):
            column = column_of_text(name, dict(table.columns)[name])
            self.add(
                "pg_attribute",
                attrelid=index,
                attname=name,
                atttypid=column.oid,
                attlen=column.size,
                attnum=place,
                atttypmod=column.modifier,
                attnotnull=False,
                attislocal=True,
                attidentity="",
                attgenerated="",
            )
        self.add(
            "pg_index",
            indexrelid=index,
            indrelid=oid,
            indnatts=len(places),
            indnkeyatts=len(places),
            indisunique=True,
            indisprimary=not table.is_flow,
            indimmediate=True,
            indisvalid=True,
            indisready=True,
            indislive=True,
            indkey=places,
            indcollation=[0] * len(places),
            indclass=[0] * len(places),
            indoption=[0] * len(places),
        )
        whole = f"CREATE UNIQUE INDEX {index_name} ON {table.schema}.{table.name} USING btree ({listed})"
        self.add("pg_indexes", schemaname=table.schema, tablename=table.name, indexname=index_name, indexdef=whole)
        self.add("headgate_indexes", oid=index, definition=whole, columns=list(table.key))
        if table.is_flow:
            return
        constraint, database = own_oid("constraint", table.schema, table.name), self._contents.database
        self.add(
            "pg_constraint",
            oid=constraint,
            conname=index_name,
            connamespace=schema_oid(table.schema),
            contype="p",
            convalidated=True,
            conrelid=oid,
            conindid=index,
            conislocal=True,
            connoinherit=True,
            conkey=places,
        )
        self.add("headgate_constraints", oid=constraint, definition=f"PRIMARY KEY ({listed})")
        of_table = {
            "constraint_catalog": database,
            "constraint_schema": table.schema,
            "constraint_name": index_name,
            "table_catalog": database,
            "table_schema": table.schema,
            "table_name": table.name,
        }
        self.add(
            "table_constraints",
            "information_schema",
            **of_table,
            constraint_type="PRIMARY KEY",
            is_deferrable="NO",
            initially_deferred="NO",
            enforced="YES",
        )
        for place, name in enumerate(table.key, 1):
            self.add("key_column_usage", "information_schema", **of_table, column_name=name, ordinal_position=place)
            self.add("constraint_column_usage", "information_schema", **of_table, column_name=name)

    def _helpers(self) -> None:
        """What the functions of the catalog look up."""
        schemas = {row["oid"]: row["nspname"] for row in self.rows["pg_catalog", "pg_namespace"]}
        for row in self.rows["pg_catalog", "pg_class"]:
            schema = schemas[row["relnamespace"]]
            self.add("headgate_names", oid=row["oid"], name=f"{schema}.{row['relname']}", place=0)
            self.add(
                "headgate_names", oid=row["oid"], name=f"{self._contents.database}.{schema}.{row['relname']}", place=0
            )
            if schema in (FLOWS_SCHEMA, "pg_catalog"):
                self.add(
                    "headgate_names", oid=row["oid"], name=row["relname"], place=1 if schema == FLOWS_SCHEMA else 2
                )
        for oid, name in _type_names().items():
            shown = shown_type(oid)
            self.add("headgate_shown_types", oid=oid, shown=shown)
            for known in {name, shown}:
                self.add("headgate_types", oid=oid, name=known)


def _type_names() -> Mapping[int, str]:
    return {kind["oid"]: kind["typname"] for kind in definitions().types}


def shown_type(oid: int) -> str:
    """As PostgreSQL's format_type writes a type without a modifier."""
    kinds = {kind["oid"]: kind for kind in definitions().types}
    kind = kinds[oid]
    if kind["typcategory"] == "A" and kind["typelem"] in kinds:
        return f"{shown_type(kind['typelem'])}[]"
    shown: dict[int, str] = {
        **NAMES,
        18: '"char"',
        1042: "character",
        1083: "time without time zone",
        1266: "time with time zone",
        1560: "bit",
        1562: "bit varying",
    }
    return shown.get(oid, str(kind["typname"]))


HELPERS: Mapping[str, Sequence[tuple[str, str]]] = {
    "headgate_relations": (("oid", "UINTEGER"), ("definition", "VARCHAR"), ("shown", "VARCHAR")),
    "headgate_constraints": (("oid", "UINTEGER"), ("definition", "VARCHAR")),
    "headgate_indexes": (("oid", "UINTEGER"), ("definition", "VARCHAR"), ("columns", "VARCHAR[]")),
    "headgate_names": (("oid", "UINTEGER"), ("name", "VARCHAR"), ("place", "INTEGER")),
    "headgate_types": (("oid", "UINTEGER"), ("name", "VARCHAR")),
    "headgate_shown_types": (("oid", "UINTEGER"), ("shown", "VARCHAR")),
}
"""Tables that only the functions read."""
