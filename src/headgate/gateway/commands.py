"""SET, RESET and SHOW, and the options of a connection: how they are read, and what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.config.durations import parse_duration
from headgate.gateway.answers import Done, Fetched, rows_of
from headgate.gateway.problems import WireProblem
from headgate.gateway.reading import QueryReader
from headgate.gateway.settings import FRESHNESS, REPORTED, ConnectionSettings, is_on
from headgate.gateway.statements import Statement
from headgate.gateway.transactions import Transactions
from headgate.gateway.types import TEXT
from headgate.gateway.words import Words
from headgate.scheduling.warehouse import Warehouse
from headgate.sql.tail import FreshnessClause, parse_setting

_OPTION = re.compile(r"(?:-c\s*|--)([A-Za-z_][\w.-]*)=((?:\\.|[^\s\\])*)")


READ_ONLY = "transaction_read_only"
_SHOWN = {"timezone": "TimeZone", "datestyle": "DateStyle", "intervalstyle": "IntervalStyle"}


class SettingCommands:
    """The settings of a connection as its statements change and show them; its reader is told how fresh answers must be."""

    def __init__(
        self,
        warehouse: Warehouse,
        settings: ConnectionSettings,
        transactions: Transactions,
        reading: QueryReader,
        user: str,
    ) -> None:
        self._warehouse = warehouse
        self._settings = settings
        self._transactions = transactions
        self._reading = reading
        self._user = user

    def told(self) -> Iterator[tuple[str, str]]:
        """The settings that a client hears of when it connects."""
        for name in REPORTED:
            yield name, self._user if name == "session_authorization" else self._settings[name]

    def set(self, statement: Statement) -> Done:
        setting = parse_set(statement)
        if statement.starts_with("SET", "TRANSACTION") and self._transactions.open is None:
            return Done("SET", ("SET TRANSACTION can only be used in transaction blocks",))
        if setting.is_local and setting.name is not None:
            transaction = self._transactions.open
            if transaction is None:
                return Done("SET", ("SET LOCAL can only be used in transaction blocks",))
            transaction.local.setdefault(setting.name, self._settings.own(setting.name))
        told = self.apply(setting)
        return Done(statement.word(0), changed=() if told is None else (told,))

    def apply(self, setting: Setting) -> tuple[str, str] | None:
        """Gives what the client is to be told of."""
        if setting.name is None:
            self._settings.reset_all()
            told = None
        elif setting.name.lower() == READ_ONLY:
            self._transactions.set_read_only(is_on(setting.value or "off"))
            told = None
        else:
            told = self._settings.set(setting.name, setting.value)
        self.say()
        return told

    def say(self) -> None:
        """Has the connection's queries be as fresh as its settings say."""
        said = FreshnessClause()
        for name in FRESHNESS:
            value = self._settings.freshness.get(name)
            if value is not None:
                found = parse_setting(f"SET {name} = '{value}'")
                assert found is not None
                said = found.applied_to(said)
        self._reading.session.say(said)

    def show(self, statement: Statement) -> Fetched:
        name = parse_show(statement)
        if name == "all":
            columns = [("name", TEXT), ("setting", TEXT), ("description", TEXT)]
            return rows_of(columns, [(key, value, "") for key, value in self._settings.all()], "SHOW")
        if name == "receipt":
            receipt = self._reading.receipt
            return rows_of([("receipt", TEXT)], [] if receipt is None else [(str(receipt),)], "SHOW")
        return rows_of([(shown_name(name), TEXT)], [(self.value_of(name),)], "SHOW")

    def value_of(self, name: str) -> str:
        """What holds for the connection."""
        if name.lower() == READ_ONLY:
            return "on" if self._transactions.is_read_only else "off"
        return self._freshness(name) if name in FRESHNESS else self._settings[name]

    def _freshness(self, name: str) -> str:
        """What holds for the connection's queries."""
        said = self._settings.freshness.get(name)
        if said is not None:
            return said
        value = getattr(self._warehouse.project.freshness, name)
        return "any" if value is None else str(value if isinstance(value, str) else f"{value.total_seconds():g}s")

    @property
    def statement_timeout(self) -> float | None:
        """In seconds."""
        said = self._settings["statement_timeout"].strip().lower()
        if said.isdigit():
            return int(said) / 1000 or None
        try:
            return parse_duration(said).total_seconds() or None
        except ValueError:
            return None


def shown_name(name: str) -> str:
    return _SHOWN.get(name, name)


@dataclass(frozen=True, slots=True)
class Setting:
    """SET name = value; without a value RESET name; without a name RESET ALL."""

    name: str | None
    value: str | None
    is_local: bool = False


def parse_set(statement: Statement) -> Setting:
    words = Words(statement)
    if words.take("RESET"):
        if words.take("ALL"):
            return Setting(None, None)
        return Setting(_setting_name(words), None)
    words.expect("SET")
    is_local = words.take("LOCAL")
    if not is_local:
        words.take("SESSION")
    if words.take("TRANSACTION"):
        return _transaction_modes(words, READ_ONLY)
    if words.take("CHARACTERISTICS", "AS", "TRANSACTION"):
        return _transaction_modes(words, f"default_{READ_ONLY}")
    if words.take("TIME", "ZONE"):
        return Setting("timezone", _value(words), is_local)
    if words.take("NAMES"):
        return Setting("client_encoding", _value(words), is_local)
    if words.at("ROLE") or words.at("AUTHORIZATION"):
        raise WireProblem("0A000", "the role of a connection cannot be changed", hint="connect as another user")
    name = _setting_name(words)
    if not (words.take("=") or words.take("TO")):
        raise words.error("expected = or TO")
    return Setting(name, _value(words), is_local)


def _transaction_modes(words: Words, read_only: str) -> Setting:
    # Every transaction reads one snapshot, which is at least what any level promises.
    found = Setting("transaction_isolation", "repeatable read")
    while not words.is_at_end:
        if words.take("ISOLATION", "LEVEL"):
            words.name("a level")
            words.take("READ") or words.take("COMMITTED") or words.take("UNCOMMITTED")
        elif words.take("READ", "ONLY"):
            found = Setting(read_only, "on")
        elif words.take("READ", "WRITE"):
            found = Setting(read_only, "off")
        elif not (words.take("NOT", "DEFERRABLE") or words.take("DEFERRABLE") or words.take(",")):
            raise words.error("expected a transaction mode")
    return found


def _setting_name(words: Words) -> str:
    if words.take("TIME", "ZONE"):
        return "timezone"
    if words.take("TRANSACTION", "ISOLATION", "LEVEL"):
        return "transaction_isolation"
    if words.take("SESSION", "AUTHORIZATION"):
        return "session_authorization"
    return ".".join(words.names("a setting"))


def _value(words: Words) -> str | None:
    """What follows, up to the end: a text, a word, a number with a unit, or several with commas."""
    if words.take("DEFAULT"):
        return None
    parts: list[str] = []
    while not words.is_at_end:
        token = words.token
        assert token is not None
        if parts and token.text != "," and parts[-1] != ", ":
            parts.append(" ")
        parts.append(", " if token.text == "," else token.text)
        words.index += 1
    if not parts:
        raise words.error("expected a value")
    return "".join(parts)


def parse_show(statement: Statement) -> str:
    words = Words(statement, 1)
    name = _setting_name(words)
    words.end()
    return name


def startup_options(options: str) -> list[tuple[str, str]]:
    """The settings in a connection's `options`: -c name=value, with blanks in values behind a backslash."""
    found = [(name.replace("-", "_"), re.sub(r"\\(.)", r"\1", value)) for name, value in _OPTION.findall(options)]
    if _OPTION.sub("", options).strip():
        raise WireProblem(
            "42601",
            f"cannot read the connection's options: {options[:100]}",
            hint="write options='-c max_staleness=10m'",
        )
    return found
