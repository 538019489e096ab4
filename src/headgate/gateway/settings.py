"""Settings of a connection: PostgreSQL's own, of which most have one value here, and headgate's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from zoneinfo import available_timezones

from headgate.errors import DefiniteError
from headgate.gateway.problems import INVALID_PARAMETER, UNDEFINED_OBJECT, WireProblem
from headgate.sql.tail import parse_setting

FRESHNESS = ("max_staleness", "deadline", "when_stale")
DIALECTS = ("postgres", "spark")
VERSION = "15.0"
"""The version of PostgreSQL whose catalog and protocol are spoken."""

REPORTED = {
    "server_version": f"{VERSION} (headgate)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "is_superuser": "off",
    "session_authorization": "",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
}
"""What clients are told when they connect."""

_FIXED: Mapping[str, tuple[str, ...]] = {
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1"),
    "intervalstyle": ("postgres",),
}
"""What cannot be otherwise."""
_READ_ONLY = frozenset(
    (
        "server_version",
        "server_encoding",
        "integer_datetimes",
        "is_superuser",
        "in_hot_standby",
        "server_version_num",
        "max_identifier_length",
        "block_size",
        "data_checksums",
        "lc_collate",
        "lc_ctype",
        "max_index_keys",
    )
)
_DEFAULTS = {
    **{name.lower(): value for name, value in REPORTED.items()},
    "bytea_output": "hex",
    "block_size": "8192",
    "client_min_messages": "notice",
    "data_checksums": "off",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "repeatable read",
    "default_tablespace": "",
    "default_table_access_method": "heap",
    "enable_seqscan": "on",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "search_path": '"$user", public',
    "server_version_num": "150000",
    "session_replication_role": "origin",
    "statement_timeout": "0",
    "synchronize_seqscans": "on",
    "transaction_deferrable": "off",
    "transaction_isolation": "repeatable read",
    "transaction_read_only": "off",
    "work_mem": "4MB",
    "xmloption": "content",
}
_POSIX = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2})", re.IGNORECASE)
_HOURS = re.compile(r"([+-]?)(\d{1,2})")
_UTC = frozenset(
    ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Universal", "Etc/Universal")
)


@lru_cache(maxsize=1)
def _zones() -> Mapping[str, str]:
    """Names as they are spelled, by their small letters."""
    return {name.lower(): name for name in available_timezones()}


def _zone(given: str) -> str:
    """A zone by its name, as POSIX has it (GMT-3 is three hours east), or by its hours east of UTC."""
    name = given.replace(" ", "")
    posix, hours = _POSIX.fullmatch(name), _HOURS.fullmatch(name)
    if posix is not None:
        name = f"Etc/GMT{posix[1]}{int(posix[2])}"
    elif hours is not None:
        name = f"Etc/GMT{'+' if hours[1] == '-' else '-'}{int(hours[2])}"
    found = _zones().get(name.lower()) or ("UTC" if name.upper() == "Z" else None)
    if found is None:
        raise WireProblem(
            INVALID_PARAMETER,
            f'invalid value for parameter "TimeZone": "{given}"',
            hint="name a zone, as Europe/Berlin or UTC",
        )
    return found


def is_on(value: str) -> bool:
    return value.lower() in ("on", "true", "yes", "1")


SavedSettings = tuple[dict[str, str], dict[str, str], str]
"""Values, freshness and dialect as they were at some time."""


class ConnectionSettings:
    """What a connection has set; a transaction that is rolled back takes its settings along."""

    def __init__(self) -> None:
        self._values = dict(_DEFAULTS)
        self._begun = dict(_DEFAULTS)
        """What RESET goes back to."""
        self.freshness: dict[str, str] = {}
        self._first_freshness: dict[str, str] = {}
        self.dialect = "postgres"

    def keep_as_default(self) -> None:
        """What holds now is what RESET goes back to: the connection has begun."""
        self._begun, self._first_freshness = dict(self._values), dict(self.freshness)

    def __getitem__(self, name: str) -> str:
        place = name.lower()
        if place == "dialect":
            return self.dialect
        found = self._values.get(place)
        if found is None:
            raise WireProblem(UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
        return found

    @property
    def zone(self) -> str | None:
        """The time zone that instants are shown and read in; None for UTC."""
        found = self._values["timezone"]
        return None if found in _UTC else found

    def find(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def own(self, name: str) -> str | None:
        """What the connection has set, or what holds; None for what it has not."""
        place = name.lower()
        return self.freshness.get(place) if place in FRESHNESS else self[name]

    def set(self, name: str, value: str | None) -> tuple[str, str] | None:
        """Sets a value, or goes back to the default; gives what clients are to be told of."""
        place = name.lower()
        if place in FRESHNESS:
            self._set_freshness(place, value)
            return None
        if place == "dialect":
            self._set_dialect(value)
            return None
        if place not in self._values:
            raise WireProblem(
                UNDEFINED_OBJECT,
                f'unrecognized configuration parameter "{name}"',
                hint=f"headgate's own are {', '.join((*FRESHNESS, 'dialect'))}",
            )
        given = self._begun[place] if value is None else value.strip("'")
        if place in _READ_ONLY and given != self._values[place]:
            raise WireProblem("55P02", f'parameter "{name}" cannot be changed')
        if place in _FIXED and given.lower() not in _FIXED[place]:
            raise WireProblem(
                INVALID_PARAMETER, f'invalid value for parameter "{name}": "{given}"', hint=f"it is {_DEFAULTS[place]}"
            )
        if place == "timezone":
            given = _zone(given)
        self._values[place] = _DEFAULTS[place] if place in _FIXED else given
        shown = next((each for each in REPORTED if each.lower() == place), None)
        return None if shown is None else (shown, self._values[place])

    def _set_freshness(self, name: str, value: str | None) -> None:
        given = self._first_freshness.get(name) if value is None else value
        if given is None:
            self.freshness.pop(name, None)
            return
        quoted = given.replace("'", "")
        try:
            parse_setting(f"SET {name} = '{quoted}'")
        except DefiniteError as error:
            raise WireProblem(
                INVALID_PARAMETER, f'invalid value for parameter "{name}": "{given}": {error.what}', hint=error.advice
            ) from None
        self.freshness[name] = quoted

    def _set_dialect(self, value: str | None) -> None:
        given = DIALECTS[0] if value is None else value.lower()
        if given not in DIALECTS:
            raise WireProblem(
                INVALID_PARAMETER, f"dialect cannot be {given!r}", hint=f"it is one of {', '.join(DIALECTS)}"
            )
        self.dialect = given

    def reset_all(self) -> None:
        self._values, self.freshness, self.dialect = dict(self._begun), dict(self._first_freshness), DIALECTS[0]

    def saved(self) -> SavedSettings:
        return dict(self._values), dict(self.freshness), self.dialect

    def restore(self, saved: SavedSettings) -> None:
        self._values, self.freshness, self.dialect = dict(saved[0]), dict(saved[1]), saved[2]

    def all(self) -> Iterator[tuple[str, str]]:
        yield from sorted(self._values.items())
