"""What headgate keeps in its schema of a PostgreSQL database, beside the placed tables.

    __state      one row: which warehouse, its owner's epoch, the job that all placed tables are at, and its data timestamp
    __tables     per placed table: what was shipped, which relation that was, and who else has changed it
    __parts      what executors have copied of a shipment that does not count yet
    __freshness  a view for applications: job, data_timestamp, shipped_at

A statement that changes a placed table and is not headgate's is noted by a trigger, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from headgate.serving.placed import PlacedTable

STATE, TABLES, PARTS, FRESHNESS, CHANGED = "__state", "__tables", "__parts", "__freshness", "__changed"
SHIPPING = "headgate.shipping"
"""A setting of the session: on while headgate itself changes tables."""
NEXT, DEAD, STAGED = "__next_", "__dead_", "__rows_"
"""How tables are called while they are filled beside the one that counts."""
COLUMNS_OF = (
    "SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
    " FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid ="
)
"""A query of a relation's columns and types, as `__tables` notes them; the relation's oid follows."""

_MADE = """
CREATE TABLE IF NOT EXISTS {state} (
  single boolean PRIMARY KEY DEFAULT true CHECK (single), warehouse text NOT NULL, epoch bigint NOT NULL,
  job bigint NOT NULL, closed_at timestamptz, data_timestamp timestamptz, shipped_at timestamptz);
CREATE TABLE IF NOT EXISTS {tables} (
  name text PRIMARY KEY, definition text NOT NULL, relation oid NOT NULL, columns text NOT NULL, indexes text NOT NULL,
  changed_at timestamptz, changed_by text);
CREATE TABLE IF NOT EXISTS {parts} (shipment text, part integer, PRIMARY KEY (shipment, part));
CREATE OR REPLACE VIEW {freshness} AS SELECT job, data_timestamp, shipped_at FROM {state} WHERE job > 0;
CREATE OR REPLACE FUNCTION {changed}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
  IF current_setting('headgate.shipping', true) IS DISTINCT FROM 'on' THEN
    UPDATE {tables} SET changed_at = clock_timestamp(), changed_by = session_user WHERE name = TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END $$;
"""


class Layout:
    """The names of one schema, as SQL."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def named(self, relation: str) -> sql.Identifier:
        return sql.Identifier(self.schema, relation)

    def made(self) -> sql.Composed:
        """What makes what is kept in the schema, once or again."""
        names = {name: self.named(f"__{name}") for name in ("state", "tables", "parts", "freshness", "changed")}
        return sql.SQL(_MADE).format(**names)

    def created(self, table: PlacedTable, name: str) -> sql.Composed:
        """A table with the columns of a placed one."""
        columns = (
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(table.type_of(column))) for column in table.columns
        )
        return sql.SQL("CREATE TABLE {} ({})").format(self.named(name), sql.SQL(", ").join(columns))

    def indexes(self, table: PlacedTable, name: str, server_version: int) -> Iterator[sql.Composed]:
        """The index of the key, in which NULL is a value like any other where the server knows that, and the declared ones."""
        key = sql.SQL(", ").join(map(sql.Identifier, table.key))
        nulls = sql.SQL("NULLS NOT DISTINCT" if server_version >= 150_000 else "")
        yield sql.SQL("CREATE UNIQUE INDEX ON {} ({}) {}").format(self.named(name), key, nulls)
        for columns in table.indexes:
            if columns != table.key[: len(columns)]:
                yield self.index(name, columns)

    def index(self, name: str, columns: tuple[str, ...]) -> sql.Composed:
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        return sql.SQL("CREATE INDEX ON {} ({})").format(self.named(name), listed)

    def watched(self, name: str) -> sql.Composed:
        return sql.SQL(
            "CREATE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {} FOR EACH STATEMENT EXECUTE FUNCTION {}()"
        ).format(sql.Identifier(CHANGED), self.named(name), self.named(CHANGED))

    def deleted(self, table: PlacedTable, dead: sql.Composable, *, with_nulls: bool) -> sql.Composed:
        """Deletes the rows whose keys are listed: those without NULL, by the index, or those with."""
        same = sql.SQL("=" if not with_nulls else "IS NOT DISTINCT FROM")
        keys = [sql.Identifier(column) for column in table.key]
        equal = sql.SQL(" AND ").join(sql.SQL("t.{} {} d.{}").format(key, same, key) for key in keys)
        where = equal
        if with_nulls:
            unknown = sql.SQL(" OR ").join(sql.SQL("d.{} IS NULL").format(key) for key in keys)
            where = sql.SQL("({}) AND {}").format(unknown, equal)
        return sql.SQL("DELETE FROM {} t USING {} d WHERE {}").format(self.named(table.name), dead, where)
