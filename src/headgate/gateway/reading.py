"""A connection's queries: known by what they read, answered by Spark or by the catalog; EXPLAIN, DESCRIBE, SUBSCRIBE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from typing import Protocol

from sqlglot import exp

from headgate.errors import DefiniteError
from headgate.gateway.answers import Fetched, Followed, Result, rows_of
from headgate.gateway.catalog.engine import Catalog
from headgate.gateway.catalog.rewriting import Asking, is_catalog
from headgate.gateway.dialect import (
    FLOWS_SCHEMA,
    is_same_in_spark,
    local_name,
    parse,
    plain_shape,
    spark_text,
    table_name,
)
from headgate.gateway.problems import NOT_SUPPORTED, SYNTAX, WireProblem
from headgate.gateway.queries import Made, Work, read_answer, read_told
from headgate.gateway.settings import VERSION, ConnectionSettings
from headgate.gateway.statements import Statement
from headgate.gateway.transactions import Transactions
from headgate.gateway.types import INT8, TEXT, WireColumn, columns_of, in_zone
from headgate.gateway.words import Words
from headgate.scheduling.receipt import Receipt
from headgate.scheduling.session import Session
from headgate.scheduling.subscription import Subscription
from headgate.scheduling.warehouse import Warehouse
from headgate.service.limits import ServiceLimits
from headgate.sql.subscribing import parse_subscribe
from headgate.sql.tail import FreshnessClause, split_tail

_QUERIES = frozenset(("SELECT", "WITH", "VALUES", "TABLE", "(", "FROM"))
_NO_TAIL = FreshnessClause()
_MOST_SHAPES = 1_000
_SAME_IN_SPARK = set[str]()
"""Shapes of queries of tables that mean the same as they are written: the next ones of a shape need not be parsed here."""
_TAIL = re.compile(r"\b(?:currency\s+bound|deadline|when\s+stale)\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def _kept(text: str) -> exp.Expr:
    return parse(text)


@lru_cache(maxsize=256)
def _counter(text: str) -> Iterator[int]:
    return count()


def parsed(text: str) -> exp.Expr:
    """A query of PostgreSQL; not to be changed. Only the tree of a text that comes again is kept: trees that live on for a while, and
    go, have Python look through all that there is."""
    return _kept(text) if next(_counter(text)) else parse(text)


def is_query(statement: Statement) -> bool:
    return statement.word(0) in _QUERIES


def is_told(statement: Statement) -> bool:
    """DESCRIBE, SHOW TABLES and SHOW FLOWS, which are the same on every surface."""
    first = statement.word(0)
    return first in ("DESCRIBE", "DESC") or (first == "SHOW" and statement.word(1) in ("TABLES", "FLOWS"))


def split_query(text: str) -> tuple[str, FreshnessClause]:
    """A query and its tail, which says how fresh the answer must be."""
    found = _TAIL.search(text)
    if found is None:
        return text, _NO_TAIL
    try:
        return split_tail(text)
    except DefiniteError as error:
        raise WireProblem(SYNTAX, error.what, hint=error.advice, at=found.start()) from None


class SubscriptionPlaces(Protocol):
    """Who counts the subscriptions that are open, on every surface."""

    def admit(self, subscription: Subscription) -> None: ...

    def release(self, subscription: Subscription) -> None: ...


class QueryReader:
    """Reads for one connection."""

    def __init__(
        self,
        warehouse: Warehouse,
        catalog: Catalog,
        limits: ServiceLimits,
        settings: ConnectionSettings,
        transactions: Transactions,
        who: Mapping[str, object],
        subscriptions: SubscriptionPlaces,
    ) -> None:
        """`who`: the functions of the connection that have one value, by name."""
        self._warehouse = warehouse
        self._catalog = catalog
        self._limits = limits
        self._settings = settings
        self._transactions = transactions
        self._who = who
        self._subscriptions = subscriptions
        self.apply_setting: Callable[[str, str | None, bool], object] = lambda name, value, is_local: None
        self.shown_setting: Callable[[str], str] = settings.__getitem__
        """What SET and SHOW do, for the functions that do the same."""
        self.session: Session = warehouse.session()
        self.receipt: Receipt | None = None
        """Of the last query that read tables."""

    def query(self, text: str, values: Sequence[object]) -> Made:
        query, tail = split_query(text)
        if self._settings.dialect == "spark":
            if values:
                raise WireProblem(NOT_SUPPORTED, "Spark's dialect takes no parameters", hint="SET dialect = postgres")
            return lambda work: self.read(work, query, tail)
        shape = plain_shape(query)
        if shape in _SAME_IN_SPARK and not self._transactions.defines:
            return lambda work: self.read(work, query, tail)
        tree = parsed(query)
        if is_catalog(tree):
            return lambda work: self._shown(self._catalog.query(tree, values, self._asking()))
        self._refuse_defined(tree)
        if shape is not None and is_same_in_spark(tree):
            if len(_SAME_IN_SPARK) >= _MOST_SHAPES:
                _SAME_IN_SPARK.clear()
            _SAME_IN_SPARK.add(shape)
            return lambda work: self.read(work, query, tail)
        return lambda work: self.read(work, self.spark_text(tree, values), tail)

    def columns(self, work: Work, text: str, values: Sequence[object]) -> tuple[WireColumn, ...]:
        """The columns that a query will have; nothing is read."""
        query, _ = split_query(text)
        if self._settings.dialect != "spark":
            tree = parsed(query)
            if is_catalog(tree):
                return self._catalog.query(tree, [None] * len(values), self._asking()).columns
            query = self.spark_text(tree, values)
        work.ran = query
        return columns_of(self.session.columns(query))

    def spark_text(self, tree: exp.Expr, values: Sequence[object] = ()) -> str:
        return spark_text(tree, values, self._warehouse.column_type, self._settings.zone)

    def read(self, work: Work, text: str, tail: FreshnessClause) -> Fetched:
        """The rows of a query in Spark's words."""
        transaction = self._transactions.open
        snapshot = None if transaction is None else transaction.snapshot
        if snapshot is not None and snapshot.job is not None and tail != _NO_TAIL:
            raise WireProblem(
                NOT_SUPPORTED,
                "the transaction reads the snapshot of its first query, which no other freshness can change",
                hint="COMMIT first, or leave the tail out",
            )
        fetched = read_answer(work, self.session, text, tail, self._limits, snapshot)
        self.receipt = fetched.receipt or self.receipt
        return self._shown(fetched)

    def _read_told(self, work: Work, text: str) -> Fetched:
        """The rows of a statement that tells about tables: no snapshot's."""
        return self._shown(read_told(work, self.session, text))

    def told(self, statement: Statement) -> Made:
        """SHOW TABLES, SHOW FLOWS, or DESCRIBE of a table by its name in PostgreSQL's words."""
        text = statement.text
        if statement.word(0) != "SHOW" and self._settings.dialect != "spark":
            words = Words(statement, 1)
            words.take("TABLE")
            extended = "EXTENDED " if words.take("EXTENDED") else ""
            name = local_name(words.names("a table"))
            words.end()
            text = f"DESCRIBE {extended}{'.'.join(f'`{part}`' for part in name.split('.'))}"
        return lambda work: self._read_told(work, text)

    def _shown(self, fetched: Fetched) -> Fetched:
        return replace(fetched, columns=in_zone(fetched.columns, self._settings.zone))

    def explain(self, statement: Statement, values: Sequence[object]) -> Result | Made:
        """EXPLAIN query, or EXPLAIN MATERIALIZED VIEW name."""
        words = Words(statement, 1)
        if words.take("("):
            words.skip_to(")")
        while words.take("ANALYZE") or words.take("VERBOSE"):
            pass
        if words.take("MATERIALIZED", "VIEW"):
            name = words.names()[-1]
            words.end()
            return lambda work: replace(self._read_told(work, f"EXPLAIN FLOW {name}"), command="EXPLAIN")
        text = statement.since(words.index)
        query, _ = split_query(text)
        tail = text[len(query) :].strip()
        if self._settings.dialect != "spark":
            if is_catalog(parsed(query)):
                return rows_of([("QUERY PLAN", TEXT)], [("DuckDB answers queries of the catalog",)], "EXPLAIN")
            query = self.spark_text(parsed(query), values)
        return lambda work: replace(self._read_told(work, f"EXPLAIN {query} {tail}".rstrip()), command="EXPLAIN")

    def subscribe(self, statement: Statement) -> Made:
        """SUBSCRIBE TO table [AS OF job]: its rows, then the weighted changes of every job, until the client cancels."""
        asked = parse_subscribe(statement.text)
        if asked is None:
            raise WireProblem(SYNTAX, "write SUBSCRIBE TO table [AS OF job]", at=0)
        table = asked.table.removeprefix(f"{FLOWS_SCHEMA}.")
        own = self._settings.freshness.get("max_staleness")
        said = asked.max_staleness if asked.max_staleness is not None else own

        def follow(work: Work) -> Followed:
            found = self._warehouse.subscribe(table, asked.as_of, max_staleness=said)
            self._subscriptions.admit(found)
            return Followed(self._followed(found), found, lambda: self._subscriptions.release(found))

        return follow

    def subscribed_columns(self, statement: Statement) -> tuple[WireColumn, ...]:
        """The columns that a SUBSCRIBE will have; nothing is read."""
        asked = parse_subscribe(statement.text)
        if asked is None:
            raise WireProblem(SYNTAX, "write SUBSCRIBE TO table [AS OF job]", at=0)
        found = self._warehouse.subscribe(asked.table.removeprefix(f"{FLOWS_SCHEMA}."))
        try:
            return self._followed(found)
        finally:
            found.close()

    def _followed(self, found: Subscription) -> tuple[WireColumn, ...]:
        own = (WireColumn("__job", INT8), WireColumn("__weight", INT8), WireColumn("__position", TEXT))
        return in_zone((*own, *columns_of(found.columns)), self._settings.zone)

    def _refuse_defined(self, tree: exp.Expr) -> None:
        """What a transaction defines is there when it is committed."""
        transaction = self._transactions.open
        if transaction is None or not self._transactions.defines:
            return
        pending = {name.casefold() for name in transaction.definitions}
        for table in tree.find_all(exp.Table):
            name = table_name(table)
            if name.casefold() in pending:
                raise WireProblem(
                    NOT_SUPPORTED,
                    f"this transaction defines or drops {name}, which counts when it is committed",
                    hint="COMMIT first, then read it",
                )

    def _asking(self) -> Asking:
        """What functions of the connection give to a query of the catalog."""
        path = [FLOWS_SCHEMA]

        def set_config(given: Sequence[str | None]) -> str:
            self.apply_setting((given[0] or "").lower(), given[1], len(given) > 2 and given[2] == "true")
            return given[1] or ""

        def current_setting(given: Sequence[str | None]) -> str | None:
            name = (given[0] or "").lower()
            try:
                return self.shown_setting(name)
            except WireProblem:
                if len(given) > 1 and given[1] == "true":
                    return None
                raise

        return Asking(
            {
                **{name: partial(_constant, value) for name, value in self._who.items()},
                "current_schema": lambda given: FLOWS_SCHEMA,
                "current_schemas": lambda given: ["pg_catalog", *path] if given[0] == "true" else path,
                "current_setting": current_setting,
                "set_config": set_config,
                "version": lambda given: f"PostgreSQL {VERSION} (headgate)",
            }
        )


def _constant(value: object, given: Sequence[str | None]) -> object:
    return value
