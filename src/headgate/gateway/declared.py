"""The flows that clients define, as a connection's transaction sees them: those of the warehouse, with what waits for COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp, parse_one

from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.transactions import Transactions
from headgate.scheduling.warehouse import Warehouse
from headgate.sql.expectations import COUNTED
from headgate.sql.statements import ViewText


class DeclaredFlows:
    """Names are compared without case, and given as they are spelled."""

    def __init__(self, warehouse: Warehouse, transactions: Transactions) -> None:
        self._warehouse = warehouse
        self._transactions = transactions

    @property
    def _pending(self) -> Mapping[str, str | None]:
        transaction = self._transactions.open
        return {} if transaction is None else transaction.definitions

    @property
    def _declared(self) -> dict[str, str]:
        known: dict[str, str | None] = {**self._warehouse.declared, **self._pending}
        return {name: text for name, text in known.items() if text is not None}

    @property
    def _tables(self) -> list[str]:
        pending = self._pending
        gone = {name.casefold() for name, text in pending.items() if text is None}
        known = [*self._warehouse.tables, *(name for name, text in pending.items() if text is not None)]
        return [name for name in known if name.casefold() not in gone]

    def exists(self, name: str) -> bool:
        return any(table.casefold() == name.casefold() for table in self._tables)

    def spelled(self, name: str) -> str:
        return next((table for table in self._tables if table.casefold() == name.casefold()), name)

    def view_of(self, name: str) -> ViewText:
        """A flow in Spark's words; one of the project's files is refused."""
        found = next((text for each, text in self._declared.items() if each.casefold() == name.casefold()), None)
        if found is None:
            owner = self._counted(name)
            if owner is not None:
                raise WireProblem(
                    "42501",
                    f"{name} counts what violates the constraints of {owner}, and goes with them",
                    hint=f"ALTER MATERIALIZED VIEW {owner} DROP CONSTRAINT name",
                )
            raise WireProblem(
                "42501",
                f"{name} is defined in the project's files, and is changed there",
                hint="change the file and `headgate apply`; or remove it from the file, apply, and create it here",
            )
        return ViewText.of(found)

    def _counted(self, name: str) -> str | None:
        """The flow whose violations a flow of this name counts."""
        base = name[: -len(COUNTED)] if name.casefold().endswith(COUNTED) else ""
        return base if base and self.exists(base) else None

    def is_of_files(self, name: str) -> bool:
        return name.casefold() not in {each.casefold() for each in self._declared}

    def readers(self, names: Iterable[str], *, directly: bool = False) -> list[str]:
        """The flows that read one of these, nearest first; what only counts a flow's violations goes with that flow."""
        found, known = list[str](), {name.casefold() for name in names}
        reads = {name: read for name, read in self._reads().items() if self._counted(name) is None}
        while True:
            more = [
                name
                for name, read in reads.items()
                if name.casefold() not in known and not known.isdisjoint(each.casefold() for each in read)
            ]
            if not more:
                return found
            found += more
            if directly:
                return found
            known.update(name.casefold() for name in more)

    def _reads(self) -> dict[str, Iterable[str]]:
        pending = self._pending
        kept = {each.name: each.reads for each in self._warehouse.describe() if each.name not in pending}
        return {**kept, **{name: tables_of(text) for name, text in pending.items() if text is not None}}

    def change(self, flows: Mapping[str, str | None]) -> None:
        """Defines and (None) drops flows: at once, or when the transaction is committed; mistakes are told now."""
        transaction = self._transactions.open
        if transaction is None:
            self._warehouse.redeclare(flows)
            return
        if transaction.writes:
            raise WireProblem(
                NOT_SUPPORTED, "a transaction inserts rows or defines flows, not both", hint="COMMIT the rows first"
            )
        known = self._warehouse.declared
        changed = {**transaction.definitions, **flows}
        changed = {name: text for name, text in changed.items() if text is not None or name in known}
        self._warehouse.redeclare(changed, dry_run=True)
        transaction.definitions = changed

    def afterwards(self, call: Callable[[], None]) -> None:
        """Does something that goes with the flows: at once, or after they count."""
        transaction = self._transactions.open
        if transaction is None:
            call()
        else:
            transaction.afterwards.append(call)


def tables_of(flow: str) -> set[str]:
    """The tables that a flow in Spark's words reads."""
    tree = parse_one(ViewText.of(flow).query, dialect="spark")
    inner = {each.alias_or_name.casefold() for each in tree.find_all(exp.CTE)}
    return {
        f"{table.db}.{table.name}" if table.db else table.name
        for table in tree.find_all(exp.Table)
        if table.db or table.name.casefold() not in inner
    }
