"""BEGIN … COMMIT: one snapshot for its queries; what it inserts and defines counts when it is committed, and not at all otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.gateway.answers import Done, Result
from headgate.gateway.problems import ACTIVE_TRANSACTION, FAILED_TRANSACTION, NO_TRANSACTION, NOT_SUPPORTED, WireProblem
from headgate.gateway.producing import Writes
from headgate.gateway.queries import Made, TransactionSnapshot, Work
from headgate.gateway.settings import ConnectionSettings, SavedSettings, is_on
from headgate.gateway.statements import Statement
from headgate.gateway.words import Words
from headgate.scheduling.warehouse import Warehouse

ENDING = frozenset(("COMMIT", "END", "ROLLBACK", "ABORT"))
"""What a failed transaction still takes."""


@dataclass
class WireTransaction:
    settings: SavedSettings
    """As they were before it."""
    snapshot: TransactionSnapshot = field(default_factory=TransactionSnapshot)
    has_failed: bool = False
    is_read_only: bool = False
    savepoints: list[str] = field(default_factory=list)
    writes: Writes = field(default_factory=Writes)
    """Rows that are inserted when it is committed."""
    definitions: dict[str, str | None] = field(default_factory=dict)
    """Flows that are defined, or dropped (None), when it is committed."""
    local: dict[str, str | None] = field(default_factory=dict)
    """Settings that SET LOCAL changed, as they were before."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """What is done once the definitions count: comments on them."""

    @property
    def changes_something(self) -> bool:
        return bool(self.writes or self.definitions or self.afterwards)

    def commit(self, warehouse: Warehouse) -> None:
        self.writes.commit(warehouse)
        if self.definitions:
            warehouse.redeclare(self.definitions)
        for each in self.afterwards:
            each()


class Transactions:
    """Those of a connection, of which one at most is open."""

    def __init__(self, warehouse: Warehouse, settings: ConnectionSettings, ended: Callable[[], None]) -> None:
        """`ended` is told of every end, after settings went back."""
        self._warehouse = warehouse
        self._settings = settings
        self._ended = ended
        self.open: WireTransaction | None = None

    @property
    def status(self) -> str:
        """As the protocol has it: idle, in a transaction, or in one that failed."""
        if self.open is None:
            return "I"
        return "E" if self.open.has_failed else "T"

    @property
    def defines(self) -> bool:
        """Whether flows wait for COMMIT."""
        return self.open is not None and bool(self.open.definitions)

    def failed(self) -> None:
        """A statement failed: of a transaction nothing more is done."""
        if self.open is not None:
            self.open.has_failed = True

    def admit(self, statement: Statement) -> None:
        """Refuses what a failed transaction does not take."""
        if self.open is not None and self.open.has_failed and statement.word(0) not in ENDING:
            raise WireProblem(
                FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block"
            )

    def begin(self, statement: Statement) -> Done:
        if self.open is not None:
            return Done("BEGIN", ("there is already a transaction in progress",))
        words = [statement.word(place) for place in range(len(statement.tokens))]
        modes = set(itertools.pairwise(words))
        is_read_only = ("READ", "ONLY") in modes or (self.is_read_only and ("READ", "WRITE") not in modes)
        self.open = WireTransaction(self._settings.saved(), is_read_only=is_read_only)
        return Done("BEGIN")

    @property
    def is_read_only(self) -> bool:
        """Of the open transaction; without one, of those to come."""
        if self.open is None:
            return is_on(self._settings["default_transaction_read_only"])
        return self.open.is_read_only

    def set_read_only(self, is_read_only: bool) -> None:
        """SET TRANSACTION READ ONLY | READ WRITE; nothing without an open transaction."""
        if self.open is None:
            return
        if self.open.is_read_only and not is_read_only and self.open.snapshot.job is not None:
            raise WireProblem(ACTIVE_TRANSACTION, "transaction read-write mode must be set before any query")
        self.open.is_read_only = is_read_only

    def end(self, statement: Statement) -> Result | Made:
        """COMMIT or ROLLBACK; a transaction that failed is rolled back."""
        if statement.starts_with("ROLLBACK", "TO"):
            return self.savepoint(statement)
        is_commit, transaction = statement.word(0) in ("COMMIT", "END"), self.open
        if transaction is None:
            return Done("COMMIT" if is_commit else "ROLLBACK", ("there is no transaction in progress",))
        if not is_commit or transaction.has_failed:
            return self._rolled_back(transaction)
        if not transaction.changes_something:
            return self._committed(transaction)

        def commit(work: Work) -> Done:
            try:
                transaction.commit(self._warehouse)
            except BaseException:
                self._rolled_back(transaction)
                raise
            return self._committed(transaction)

        return commit

    def _committed(self, transaction: WireTransaction) -> Done:
        told = [self._settings.set(name, value) for name, value in transaction.local.items()]
        self.close()
        return Done("COMMIT", changed=tuple(each for each in told if each is not None))

    def _rolled_back(self, transaction: WireTransaction) -> Done:
        self._settings.restore(transaction.settings)
        self.close()
        return Done("ROLLBACK")

    def close(self) -> None:
        if self.open is not None:
            self.open.snapshot.release()
            self.open.writes.close()
        self.open = None
        self._ended()

    def savepoint(self, statement: Statement) -> Done:
        """SAVEPOINT, RELEASE, ROLLBACK TO: without rows or definitions that wait there is nothing to undo but a failure."""
        transaction = self.open
        if transaction is None:
            raise WireProblem(NO_TRANSACTION, f"{statement.word(0)} can only be used in transaction blocks")
        words = Words(statement, 2 if statement.starts_with("ROLLBACK", "TO") else 1)
        words.take("SAVEPOINT")
        name = words.name("a savepoint's name")
        words.end()
        if statement.word(0) == "SAVEPOINT":
            transaction.savepoints.append(name)
            return Done("SAVEPOINT")
        if name not in transaction.savepoints:
            raise WireProblem("3B001", f'savepoint "{name}" does not exist')
        place = len(transaction.savepoints) - 1 - transaction.savepoints[::-1].index(name)
        if statement.word(0) == "RELEASE":
            del transaction.savepoints[place:]
            return Done("RELEASE")
        if transaction.changes_something:
            raise WireProblem(
                NOT_SUPPORTED,
                "what a transaction inserted or defined cannot be undone in part",
                hint="ROLLBACK undoes all",
            )
        del transaction.savepoints[place + 1 :]
        transaction.has_failed = False
        return Done("ROLLBACK")
