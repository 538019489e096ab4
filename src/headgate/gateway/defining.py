"""Statements that define flows: CREATE, DROP, ALTER, REFRESH MATERIALIZED VIEW, CREATE SCHEMA, COMMENT, ALTER ROLE.

A flow belongs to the project's files or to programs, of which clients are one kind: what a file defines is changed there. Inside
BEGIN … COMMIT a definition is checked at once and counts at COMMIT; ROLLBACK takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp, parse_one

from headgate.dataflow.flow import Expectation
from headgate.errors import Location
from headgate.gateway.answers import Done
from headgate.gateway.clauses import Constraint, constraint, properties, property_names, view_clauses
from headgate.gateway.comments import Comments
from headgate.gateway.declared import DeclaredFlows
from headgate.gateway.dialect import FLOWS_SCHEMA, local_name, parse, quoted_name
from headgate.gateway.problems import (
    DEPENDENT_OBJECTS,
    DUPLICATE_TABLE,
    NOT_SUPPORTED,
    UNDEFINED_TABLE,
    WireProblem,
)
from headgate.gateway.queries import Made, Work
from headgate.gateway.reading import QueryReader
from headgate.gateway.settings import FRESHNESS, ConnectionSettings
from headgate.gateway.statements import Statement
from headgate.gateway.transactions import Transactions
from headgate.gateway.words import Words
from headgate.scheduling.warehouse import Warehouse
from headgate.sql.statements import ViewText
from headgate.warehouse.roles import Roles


class Definer:
    """Defines flows for a connection whose role may."""

    def __init__(
        self,
        warehouse: Warehouse,
        comments: Comments,
        roles: Roles,
        reading: QueryReader,
        settings: ConnectionSettings,
        transactions: Transactions,
    ) -> None:
        self._warehouse = warehouse
        self._comments = comments
        self._roles = roles
        self._reading = reading
        self._settings = settings
        self._flows = DeclaredFlows(warehouse, transactions)

    def define(self, statement: Statement) -> Made:
        match statement.word(0):
            case "ALTER":
                return self._alter(statement)
            case "COMMENT":
                return self._comment(statement)
            case "CREATE":
                return self._create(statement)
            case "DROP":
                return self._drop(statement)
        return self._refresh(statement)

    def _create(self, statement: Statement) -> Made:
        words = Words(statement, 1)
        if words.take("SCHEMA"):
            return self._create_schema(words)
        if words.at("INDEX") or words.at("UNIQUE", "INDEX"):
            raise WireProblem(
                NOT_SUPPORTED,
                "there are no indexes: a table is read by its key and by what its files hold",
                hint="leave them out, in dbt the config `indexes`; a table placed at a PostgreSQL has WITH (indexes = '…')",
                at=0,
            )
        replaces = words.take("OR", "REPLACE")
        if not words.take("MATERIALIZED", "VIEW"):
            raise WireProblem(
                NOT_SUPPORTED,
                f"CREATE {statement.word(1)} is not possible: tables are those of sources, and flows are materialized views",
                hint="CREATE MATERIALIZED VIEW name AS SELECT …; in dbt: materialized: materialized_view",
                at=0,
            )
        may_exist = words.take("IF", "NOT", "EXISTS")
        name = self._flow_name(words)
        clauses = view_clauses(words)
        query = _without_data(statement.since(words.index))

        def create(work: Work) -> Done:
            tag = "CREATE MATERIALIZED VIEW"
            if self._flows.exists(name):
                if may_exist:
                    return Done(tag, (f'relation "{name}" already exists, skipping',))
                if not replaces:
                    owner = "the project's files define it: change it there" if self._flows.is_of_files(name) else None
                    raise WireProblem(DUPLICATE_TABLE, f'relation "{name}" already exists', hint=owner)
                self._flows.view_of(name)
            listed = f" ({', '.join(map(quoted_name, clauses.columns))})" if clauses.columns else ""
            rows = f"({query}) AS {quoted_name(name)}{listed}"
            view = ViewText(
                _with_names(self._spark(query), clauses.columns),
                tuple(self._expectation(each, rows) for each in clauses.constraints),
                clauses.properties,
            )
            self._flows.change({name: view.written(name)})
            if clauses.comment is not None:
                self._flows.afterwards(lambda: self._comments.set(name, "", clauses.comment))
            return Done(tag)

        return create

    def _expectation(self, constraint: Constraint, rows: str) -> Expectation:
        """A constraint on rows, which are a table or a query as FROM has it, in Spark's words."""
        condition = constraint.condition
        if self._settings.dialect != "spark":
            text = self._reading.spark_text(parse(f"SELECT 1 FROM {rows} WHERE ({condition})"))
            condition = parse_one(text, dialect="spark").args["where"].this.unnest().sql(dialect="spark")
        return Expectation(constraint.name, condition, constraint.action, Location("query"))

    def _spark(self, query: str) -> str:
        return query if self._settings.dialect == "spark" else self._reading.spark_text(parse(query))

    def _create_schema(self, words: Words) -> Made:
        may_exist = words.take("IF", "NOT", "EXISTS")
        name = words.name("a schema's name")
        if name not in (FLOWS_SCHEMA, *self._warehouse.sources):
            raise WireProblem(
                NOT_SUPPORTED,
                f"there cannot be a schema {name}: flows are in {FLOWS_SCHEMA}, a source's tables in the schema of the source",
                hint=f"use the schema {FLOWS_SCHEMA}; in dbt's profile: schema: {FLOWS_SCHEMA}",
            )
        if not may_exist:
            raise WireProblem("42P06", f'schema "{name}" already exists')
        return lambda work: Done("CREATE SCHEMA", (f'schema "{name}" already exists, skipping',))

    def _drop(self, statement: Statement) -> Made:
        words = Words(statement, 1)
        kind = statement.word(1)
        is_view = words.take("MATERIALIZED", "VIEW")
        if not is_view and not (words.take("VIEW") or words.take("TABLE")):
            raise WireProblem(NOT_SUPPORTED, f"DROP {kind} is not possible here", at=0)
        may_lack = words.take("IF", "EXISTS")
        names = [self._flow_name(words)]
        while words.take(","):
            names.append(self._flow_name(words))
        cascades = words.take("CASCADE")
        words.take("RESTRICT")
        words.end()
        kind = "MATERIALIZED VIEW" if is_view else kind
        tag = f"DROP {kind}"

        def drop(work: Work) -> Done:
            gone = dict[str, None]()
            notices = []
            for name in names:
                if not self._flows.exists(name) or not is_view:
                    if not may_lack:
                        raise WireProblem(UNDEFINED_TABLE, f'{kind.lower()} "{name}" does not exist')
                    notices.append(f'{kind.lower()} "{name}" does not exist, skipping')
                    continue
                self._flows.view_of(name)
                gone[self._flows.spelled(name)] = None
            readers = self._flows.readers(gone)
            if readers and not cascades:
                raise WireProblem(
                    DEPENDENT_OBJECTS,
                    f"cannot drop {', '.join(gone)}: {', '.join(readers)} reads it",
                    hint="Use DROP ... CASCADE to drop the dependent objects too.",
                )
            for reader in readers:
                self._flows.view_of(reader)
                gone[reader] = None
                notices.append(f"drop cascades to materialized view {reader}")
            if gone:
                self._flows.change(gone)
            return Done(tag, tuple(notices))

        return drop

    def _alter(self, statement: Statement) -> Made:
        words = Words(statement, 1)
        if words.take("ROLE") or words.take("USER"):
            return self._alter_role(words)
        if not (words.take("MATERIALIZED", "VIEW") or words.take("TABLE")):
            raise WireProblem(NOT_SUPPORTED, f"ALTER {statement.word(1)} is not possible here", at=0)
        may_lack = words.take("IF", "EXISTS")
        old = self._flow_name(words)
        if words.at("ADD") or words.at("DROP") or words.at("SET") or words.at("RESET") or words.at("UNSET"):
            return self._alter_clauses(old, may_lack, words)
        if not words.take("RENAME", "TO"):
            raise WireProblem(
                NOT_SUPPORTED,
                "a materialized view can be renamed, and have constraints and properties added and taken away",
                hint="drop it, and create it again",
            )
        new = words.name("the new name")
        words.end()

        def rename(work: Work) -> Done:
            if not self._flows.exists(old):
                if may_lack:
                    return Done("ALTER MATERIALIZED VIEW", (f'relation "{old}" does not exist, skipping',))
                raise WireProblem(UNDEFINED_TABLE, f'relation "{old}" does not exist')
            if self._flows.exists(new):
                raise WireProblem(DUPLICATE_TABLE, f'relation "{new}" already exists')
            spelled = self._flows.spelled(old)
            changes: dict[str, str | None] = {new: self._flows.view_of(old).written(new), spelled: None}
            for reader in self._flows.readers([spelled], directly=True):
                view = self._flows.view_of(reader)
                changes[reader] = replace(view, query=_renamed(view.query, spelled, new)).written(reader)
            self._flows.change(changes)
            self._flows.afterwards(lambda: self._comments.rename(old, new))
            return Done("ALTER MATERIALIZED VIEW")

        return rename

    def _alter_clauses(self, name: str, may_lack: bool, words: Words) -> Made:
        """ALTER MATERIALIZED VIEW name ADD | DROP CONSTRAINT …, SET | RESET (…), SET | UNSET TBLPROPERTIES (…)."""
        change = self._clause_change(name, words)
        words.end()

        def alter(work: Work) -> Done:
            tag = "ALTER MATERIALIZED VIEW"
            if not self._flows.exists(name):
                if may_lack:
                    return Done(tag, (f'relation "{name}" does not exist, skipping',))
                raise WireProblem(UNDEFINED_TABLE, f'relation "{name}" does not exist')
            view = self._flows.view_of(name)
            changed = change(view)
            if changed == view:
                return Done(tag, (f'materialized view "{name}" is so already, skipping',))
            self._flows.change({self._flows.spelled(name): changed.written(self._flows.spelled(name))})
            return Done(tag)

        return alter

    def _clause_change(self, name: str, words: Words) -> Callable[[ViewText], ViewText]:
        if words.take("ADD"):
            added = self._expectation(constraint(words), quoted_name(name))
            return lambda view: _with_constraint(view, added)
        if words.take("DROP"):
            words.expect("CONSTRAINT")
            may_lack, dropped = words.take("IF", "EXISTS"), words.name("the constraint's name")
            return lambda view: _without_constraint(view, name, dropped, may_lack)
        if words.take("SET"):
            words.take("TBLPROPERTIES")
            given = properties(words)
            return lambda view: replace(view, properties={**view.properties, **given})
        if not words.take("UNSET", "TBLPROPERTIES"):
            words.expect("RESET")
        gone = property_names(words)
        return lambda view: replace(
            view, properties={key: value for key, value in view.properties.items() if key not in gone}
        )

    def _alter_role(self, words: Words) -> Made:
        """ALTER ROLE name SET setting = value | RESET setting."""
        role = words.name("a role")
        is_reset = words.take("RESET")
        if not is_reset:
            words.expect("SET")
        setting = words.name("a setting")
        value = None
        if not is_reset:
            if not (words.take("=") or words.take("TO")):
                raise words.error("expected = or TO")
            value = (
                words.string("a value in quotes")
                if words.token and words.token.text and words.statement.word(words.index) == ""
                else words.name("a value")
            )
        words.end()
        if setting not in (*FRESHNESS, "dialect", "statement_timeout"):
            raise WireProblem(
                NOT_SUPPORTED,
                f"a role cannot have the setting {setting}",
                hint=f"it can have {', '.join(FRESHNESS)}, dialect and statement_timeout",
            )
        ConnectionSettings().set(setting, value)

        def alter(work: Work) -> Done:
            self._flows.afterwards(lambda: self._roles.set(role, setting, value))
            return Done("ALTER ROLE")

        return alter

    def _refresh(self, statement: Statement) -> Made:
        words = Words(statement, 1)
        words.expect("MATERIALIZED", "VIEW")
        words.take("CONCURRENTLY")
        name = self._flow_name(words)

        def refresh(work: Work) -> Done:
            if not self._flows.exists(name):
                raise WireProblem(UNDEFINED_TABLE, f'relation "{name}" does not exist')
            spelled = self._flows.spelled(name)
            if spelled in self._warehouse.tables:  # else it is built, up to now, at COMMIT
                with self._reading.session.sql(f"SELECT 1 FROM `{spelled}` LIMIT 0", max_staleness="0s"):
                    pass
            return Done("REFRESH MATERIALIZED VIEW")

        return refresh

    def _comment(self, statement: Statement) -> Made:
        """COMMENT ON TABLE | VIEW | MATERIALIZED VIEW | COLUMN name IS 'text' | NULL."""
        words = Words(statement, 1)
        words.expect("ON")
        is_column = words.take("COLUMN")
        if not (is_column or words.take("MATERIALIZED", "VIEW") or words.take("TABLE") or words.take("VIEW")):
            raise WireProblem(NOT_SUPPORTED, f"COMMENT ON {statement.word(2)} is not possible here", at=0)
        parts = words.names("a table's name")
        words.expect("IS")
        text = None if words.take("NULL") else words.string("a comment in quotes")
        words.end()
        column = parts[-1] if is_column else ""
        table = local_name(parts[:-1] if is_column else parts)
        known = next((each for each in self._warehouse.describe() if each.name.casefold() == table.casefold()), None)
        if not self._flows.exists(table):
            raise WireProblem(UNDEFINED_TABLE, f'relation "{table}" does not exist')
        # What a transaction defines has columns that are known when it is committed.
        columns = [] if known is None else [each.name.casefold() for each in known.columns]
        if column and columns and column.casefold() not in columns:
            raise WireProblem("42703", f'column "{column}" of relation "{table}" does not exist')

        def comment(work: Work) -> Done:
            self._flows.afterwards(lambda: self._comments.set(table, column, text))
            return Done("COMMENT")

        return comment

    def _flow_name(self, words: Words) -> str:
        parts = words.names("a materialized view's name")
        name = local_name(parts)
        if "." in name:
            raise WireProblem(
                NOT_SUPPORTED,
                f"{name} is in the schema of a source, or in one that there is not",
                hint=f"flows are in the schema {FLOWS_SCHEMA}",
            )
        return name


def _with_constraint(view: ViewText, added: Expectation) -> ViewText:
    known = next((each for each in view.expectations if each.name.casefold() == added.name.casefold()), None)
    if known is None:
        return replace(view, expectations=(*view.expectations, added))
    if known == added:
        return view
    raise WireProblem(
        "42710", f'constraint "{added.name}" exists already, and is another one', hint="DROP CONSTRAINT first"
    )


def _without_constraint(view: ViewText, name: str, dropped: str, may_lack: bool) -> ViewText:
    kept = tuple(each for each in view.expectations if each.name.casefold() != dropped.casefold())
    if len(kept) == len(view.expectations) and not may_lack:
        raise WireProblem("42704", f'constraint "{dropped}" of relation "{name}" does not exist')
    return replace(view, expectations=kept)


def _with_names(query: str, names: Sequence[str]) -> str:
    """A query in Spark's words whose first columns have these names."""
    if not names:
        return query
    tree = parse_one(query, dialect="spark")
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if not isinstance(select, exp.Select) or any(each.is_star for each in select.expressions):
        raise WireProblem(
            NOT_SUPPORTED, "a list of columns is taken for a query that names its columns", hint="write them out"
        )
    if len(names) > len(select.expressions):
        raise WireProblem("42601", "too many column names were specified")
    named = [
        exp.alias_(each.unalias(), name, quoted=True) for each, name in zip(select.expressions, names, strict=False)
    ]
    select.set("expressions", [*named, *select.expressions[len(named) :]])
    return tree.sql(dialect="spark")


def _without_data(query: str) -> str:
    """The query without WITH [NO] DATA: a flow always has its data."""
    words = query.rstrip().rstrip(";").rstrip()
    for ending in ("WITH NO DATA", "WITH DATA"):
        if words.upper().endswith(ending):
            return words[: -len(ending)].rstrip()
    return words


def _renamed(text: str, old: str, new: str) -> str:
    """A query in Spark's words that reads a table by its new name."""
    tree = parse_one(text, dialect="spark")
    for table in tree.find_all(exp.Table):
        if not table.db and table.name.casefold() == old.casefold():
            alias = table.alias or table.name
            table.set("this", exp.to_identifier(new, quoted=True))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return tree.sql(dialect="spark")
