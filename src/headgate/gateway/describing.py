"""What prepared statements take and give, told before they run: the types of their parameters and the columns of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from headgate.gateway.commands import parse_show, shown_name
from headgate.gateway.cursors import Cursors, rows_of_result
from headgate.gateway.dialect import parameters_of, table_name
from headgate.gateway.parameters import NullOf
from headgate.gateway.prepared import Begin, PreparedStatement, PreparedStatements
from headgate.gateway.producing import columns_of_table, inserted
from headgate.gateway.queries import Work
from headgate.gateway.reading import QueryReader, is_query, is_told, parsed, split_query
from headgate.gateway.settings import ConnectionSettings
from headgate.gateway.statements import Statement
from headgate.gateway.types import ARRAYS, INT8, NUMERIC, OID, TEXT, WireColumn, column_of_text
from headgate.gateway.words import Words
from headgate.scheduling.warehouse import Warehouse

_WITH_ROWS = frozenset(("SHOW", "EXPLAIN", "FETCH", "EXECUTE", "DESCRIBE", "DESC", "SUBSCRIBE"))

Described = Callable[[Work], tuple[WireColumn, ...] | None]


def has_rows(statement: Statement) -> bool:
    """Whether a statement answers with rows."""
    return is_query(statement) or statement.word(0) in _WITH_ROWS


class Describer:
    def __init__(
        self,
        warehouse: Warehouse,
        settings: ConnectionSettings,
        reading: QueryReader,
        prepared: PreparedStatements,
        cursors: Cursors,
        begin: Begin,
    ) -> None:
        self._warehouse = warehouse
        self._settings = settings
        self._reading = reading
        self._prepared = prepared
        self._cursors = cursors
        self._begin = begin

    def parameter_types(self, prepared: PreparedStatement) -> tuple[int, ...]:
        """Those that the client named, and others by where they stand."""
        statement = prepared.statement
        if statement is None or self._settings.dialect != "postgres":
            return prepared.oids
        is_insert = statement.word(0) == "INSERT"
        if not (is_insert or is_query(statement)):
            return prepared.oids
        tree = parsed(statement.text if is_insert else split_query(statement.text)[0])
        found = parameters_of(tree)
        count = max([*found, len(prepared.oids)], default=0)
        known = [*prepared.oids, *[0] * (count - len(prepared.oids))]
        into = self._columns_into(tree) if isinstance(tree, exp.Insert) else ()
        return tuple(
            oid or _type_of_place(found.get(number, ()), into) or self._inferred(tree, found.get(number, ()))
            for number, oid in enumerate(known, 1)
        )

    def _columns_into(self, tree: exp.Insert) -> tuple[WireColumn, ...]:
        """The columns that an INSERT gives values to."""
        name, listed, _ = inserted(tree)
        return columns_of_table(self._warehouse, name, listed)[1]

    def _inferred(self, tree: exp.Expr, places: Sequence[exp.Parameter]) -> int:
        for place in places:
            parent = place.parent
            if isinstance(parent, exp.Cast):
                return _type_of_cast(parent)
            if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
                return INT8
            if isinstance(parent, exp.Paren):
                parent = parent.parent
            if isinstance(parent, exp.Any | exp.All):
                around = parent.parent
                columns = [] if around is None else [node for node in around.walk() if isinstance(node, exp.Column)]
                return ARRAYS.get(self._type_among(tree, columns) or TEXT, ARRAYS[TEXT])
            if isinstance(parent, exp.Predicate | exp.Binary | exp.Between | exp.In):
                others = [node for node in parent.walk() if isinstance(node, exp.Column)]
                known = self._type_among(tree, others)
                if known is not None:
                    return known
                numbers = [node for node in parent.walk() if isinstance(node, exp.Literal) and not node.is_string]
                if not others and numbers:
                    return INT8 if all("." not in number.name for number in numbers) else NUMERIC
        return TEXT

    def _type_among(self, tree: exp.Expr, columns: Sequence[exp.Expr]) -> int | None:
        """The type that columns have in the query's tables, if it is one."""
        kinds = {
            self._warehouse.column_type(table_name(table), column.name)
            for column in columns
            for table in tree.find_all(exp.Table)
        } - {None}
        return column_of_text("", str(kinds.pop())).oid if len(kinds) == 1 else None

    def columns(self, prepared: PreparedStatement, oids: Sequence[int]) -> Described:
        """The columns that a statement will have; None for one without rows."""
        statement = prepared.statement
        if statement is None or not has_rows(statement):
            return lambda work: None
        if statement.word(0) == "EXPLAIN" or is_told(statement):
            begun = self._begin(statement, ())
            return lambda work: rows_of_result(begun(work) if callable(begun) else begun).columns
        match statement.word(0):
            case "SHOW":
                return lambda work: (WireColumn(shown_name(parse_show(statement)), TEXT),)
            case "SUBSCRIBE":
                return lambda work: self._reading.subscribed_columns(statement)
            case "FETCH":
                return lambda work: self._cursors.columns(statement)
            case "EXECUTE":
                named = self._prepared.find(Words(statement, 1).name())
                return self.columns(named, self.parameter_types(named))
        return lambda work: self._reading.columns(work, statement.text, [NullOf(oid) for oid in oids])


def _type_of_place(places: Sequence[exp.Parameter], into: Sequence[WireColumn]) -> int:
    """The type of the column whose value a parameter of INSERT … VALUES is; 0 for any other."""
    for place in places:
        row = place.parent
        if isinstance(row, exp.Tuple) and isinstance(row.parent, exp.Values):
            index = next(index for index, each in enumerate(row.expressions) if each is place)
            if index < len(into):
                return into[index].oid
    return 0


def _type_of_cast(node: exp.Cast) -> int:
    if isinstance(node.to, exp.ObjectIdentifier):
        return OID if node.to.name.upper() == "OID" else TEXT
    if node.to.this == exp.DataType.Type.ARRAY and node.to.expressions[0].this == exp.DataType.Type.UINT:
        return ARRAYS[OID]
    return column_of_text("", node.to.sql(dialect="spark").lower()).oid
