"""A connection's session: what its statements mean. Knows nothing of the protocol's messages.

`begin` gives what a statement comes to at once, or work that is to be done in a thread. A statement of a failed transaction, or one
that the role may not give, is refused first. Each kind of statement has a part of its own:

    reading       queries, EXPLAIN, DESCRIBE, SUBSCRIBE        prepared       PREPARE, EXECUTE, DEALLOCATE
    transactions  BEGIN, COMMIT, ROLLBACK, SAVEPOINT           describing     what prepared statements take and give
    cursors       DECLARE, FETCH, CLOSE                        commands       SET, RESET, SHOW
    writing       INSERT, COPY                                 defining       CREATE, DROP, ALTER, REFRESH, COMMENT
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.gateway.answers import Done, Result
from headgate.gateway.catalog.engine import Catalog
from headgate.gateway.commands import Setting, SettingCommands
from headgate.gateway.comments import Comments
from headgate.gateway.cursors import Cursors
from headgate.gateway.defining import Definer
from headgate.gateway.describing import Describer
from headgate.gateway.prepared import PreparedStatements
from headgate.gateway.problems import ACTIVE_TRANSACTION, NOT_SUPPORTED, READ_ONLY, SYNTAX, WireProblem
from headgate.gateway.queries import Made
from headgate.gateway.reading import QueryReader, SubscriptionPlaces, is_query, is_told, parsed, split_query
from headgate.gateway.settings import ConnectionSettings
from headgate.gateway.statements import Statement
from headgate.gateway.transactions import ENDING, Transactions
from headgate.gateway.writing import RowWriter, is_copied_in
from headgate.scheduling.warehouse import Warehouse
from headgate.service.limits import ServiceLimits
from headgate.service.problems import NotPermitted
from headgate.warehouse.roles import CAN, Can, Roles

_OF_SOURCES = "tables follow their sources: change rows there, or by a producer's connection"
_NOT_DONE = {
    **dict.fromkeys(("UPDATE", "DELETE", "MERGE", "TRUNCATE"), _OF_SOURCES),
    **dict.fromkeys(("GRANT", "REVOKE", "REASSIGN", "SECURITY"), "roles are made with `headgate role`"),
    **dict.fromkeys(("VACUUM", "ANALYZE", "CLUSTER", "REINDEX", "CHECKPOINT"), "headgate does its upkeep by itself"),
    **dict.fromkeys(("CALL", "DO", "LOCK", "LOAD", "IMPORT"), ""),
}
"""Statements that PostgreSQL has, and what to do in place of them."""
_CHANGES = frozenset(("CREATE", "DROP", "ALTER", "REFRESH", "COMMENT", "INSERT", "COMMIT", "END", "ROLLBACK", "ABORT"))


class WireSession:
    """Used by one statement at a time. `number` is the connection's, by which it can be cancelled."""

    def __init__(
        self,
        warehouse: Warehouse,
        limits: ServiceLimits,
        catalog: Catalog,
        comments: Comments,
        roles: Roles,
        user: str,
        can: Can,
        number: int,
        subscriptions: SubscriptionPlaces,
    ) -> None:
        self.user = user
        self.number = number
        self._can: Can = can
        self.settings = ConnectionSettings()
        self.transactions = Transactions(warehouse, self.settings, self._transaction_ended)
        self.prepared = PreparedStatements(self._check, self.begin)
        self.cursors = Cursors(self.begin, lambda: self.transactions.open is not None)
        who = {
            **dict.fromkeys(("current_user", "session_user", "user", "current_role"), user),
            **dict.fromkeys(("current_database", "current_catalog"), warehouse.project.name),
            "pg_backend_pid": number,
        }
        self._reading = QueryReader(warehouse, catalog, limits, self.settings, self.transactions, who, subscriptions)
        self.commands = SettingCommands(warehouse, self.settings, self.transactions, self._reading, user)
        self._reading.apply_setting = lambda name, value, is_local: self.commands.apply(Setting(name, value, is_local))
        self._reading.shown_setting = self.commands.value_of
        self.describer = Describer(warehouse, self.settings, self._reading, self.prepared, self.cursors, self.begin)
        self.writing = RowWriter(warehouse, self.settings, self.transactions, self.begin)
        self._definer = Definer(warehouse, comments, roles, self._reading, self.settings, self.transactions)

    def begin(self, statement: Statement, values: Sequence[object] = ()) -> Result | Made:
        """What a statement comes to, or the work that it takes."""
        self.transactions.admit(statement)
        if self.transactions.is_read_only and (
            (self.changes(statement) and statement.word(0) not in ENDING) or is_copied_in(statement)
        ):
            raise WireProblem(READ_ONLY, f"cannot execute {statement.word(0)} in a read-only transaction")
        if is_query(statement):
            return self._reading.query(statement.text, values)
        if is_told(statement):
            return self._reading.told(statement)
        match first := statement.word(0):
            case "BEGIN" | "START":
                return self.transactions.begin(statement)
            case "COMMIT" | "END" | "ROLLBACK" | "ABORT":
                return self.transactions.end(statement)
            case "SAVEPOINT" | "RELEASE":
                return self.transactions.savepoint(statement)
            case "SET" | "RESET":
                return self.commands.set(statement)
            case "SHOW":
                return self.commands.show(statement)
            case "DISCARD":
                return self._discard(statement)
            case "PREPARE":
                return self.prepared.prepare(statement)
            case "EXECUTE":
                return self.prepared.execute(statement)
            case "DEALLOCATE":
                return self.prepared.deallocate(statement)
            case "DECLARE":
                return self.cursors.declare(statement, values)
            case "FETCH" | "MOVE":
                return self.cursors.fetch(statement)
            case "CLOSE":
                return self.cursors.close(statement)
            case "EXPLAIN":
                return self._reading.explain(statement, values)
            case "SUBSCRIBE":
                return self._reading.subscribe(statement)
            case "INSERT":
                self._require("produce")
                return self.writing.insert(statement, values)
            case "COPY":
                if is_copied_in(statement):
                    self._require("produce")
                return self.writing.copy(statement, values)
            case "CREATE" | "DROP" | "ALTER" | "REFRESH" | "COMMENT":
                self._require("administer")
                return self._definer.define(statement)
            case "UNLISTEN":
                return Done("UNLISTEN")
            case "LISTEN" | "NOTIFY":
                raise WireProblem(
                    NOT_SUPPORTED, "there are no notifications", hint="SUBSCRIBE TO table tells a table's changes"
                )
        if first not in _NOT_DONE:
            raise WireProblem(SYNTAX, f'syntax error at or near "{first or statement.text[:20]}"', at=0)
        raise WireProblem(NOT_SUPPORTED, f"{first} is not possible here", hint=_NOT_DONE[first] or None, at=0)

    def changes(self, statement: Statement) -> bool:
        """Whether a statement's work changes something, so that nobody may go on before it has ended."""
        if statement.word(0) == "EXECUTE":
            named = self.prepared.named_by(statement)
            return named is not None and self.changes(named)
        return statement.word(0) in _CHANGES

    def cancel(self) -> None:
        """Ends what runs; from any thread."""
        self._reading.session.cancel()

    def close(self) -> None:
        self.transactions.close()
        self.cursors.clear()
        self.prepared.clear()

    def _check(self, statement: Statement) -> None:
        if is_query(statement) and self.settings.dialect == "postgres":
            parsed(split_query(statement.text)[0])

    def _transaction_ended(self) -> None:
        self.cursors.end_transaction()
        self.commands.say()

    def _discard(self, statement: Statement) -> Done:
        what = statement.word(1)
        if what == "ALL":
            if self.transactions.open is not None:
                raise WireProblem(ACTIVE_TRANSACTION, "DISCARD ALL cannot run inside a transaction block")
            self.settings.reset_all()
            self.commands.say()
            self.prepared.clear()
            self.cursors.clear()
        return Done(f"DISCARD {what}")

    def _require(self, can: Can) -> None:
        """Refuses what the role may not do."""
        if CAN.index(self._can) < CAN.index(can):
            raise NotPermitted(f"the role {self.user} can {self._can}, and this needs a role that can {can}")
