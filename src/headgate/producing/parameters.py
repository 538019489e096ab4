"""Parameters of statements: the five ways to write them, and their values as literals of Spark SQL.

A statement's text becomes a `Template`, in which every parameter is `:headgate_parameter_<n>`; quoted texts and comments stay
as they are. `%%` stands for a percent sign where `%` marks parameters.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter

import numpy as np

from headgate.producing.dbapi import NotSupportedError, ProgrammingError

Parameters = Sequence[object] | Mapping[str, object]
Place = int | str
"""Where a parameter's value is: its position in a sequence, or its name in a mapping."""

MARKER = "headgate_parameter_"
_MARKED = re.compile(rf":{MARKER}(\d+)\b")
_SKIPPED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\r\n]*|/\*.*?\*/|::"""
_PERCENT = r"%(?:s|\((?P<name>[^()]*)\)s|(?P<percent>%))"
_STYLES = {
    "qmark": r"\?",
    "numeric": r":(?P<number>[0-9]+)\b",
    "named": r":(?P<name>[A-Za-z_]\w*)",
    "format": _PERCENT,
    "pyformat": _PERCENT,
}
_PATTERNS = {style: re.compile(f"(?P<skipped>{_SKIPPED})|{pattern}", re.DOTALL) for style, pattern in _STYLES.items()}


def require_paramstyle(style: str) -> None:
    """Refuses a style that PEP 249 does not have."""
    if style not in _STYLES:
        raise ProgrammingError(f"there is no paramstyle '{style}'", hint=f"one of {', '.join(_STYLES)}")


@dataclass(frozen=True, slots=True)
class Template:
    """A statement whose parameters are marked; `places` has one entry per marker, in order."""

    text: str
    places: tuple[Place, ...] = ()

    def filled(self, text: str, parameters: Parameters) -> str:
        """A part of the text with the parameters' values as literals."""
        self.require(parameters)
        return _MARKED.sub(lambda marker: literal(value_at(parameters, self.places[int(marker[1])])), text)

    def require(self, parameters: Parameters) -> None:
        """Refuses parameters of the wrong kind or number."""
        named = any(isinstance(place, str) for place in self.places)
        if isinstance(parameters, Mapping):
            if self.places and not named:
                raise ProgrammingError(
                    "the statement's parameters have no names, but a mapping is given", hint="give a sequence"
                )
            return
        if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Sequence):
            raise ProgrammingError(
                f"parameters are a sequence or a mapping, not {type(parameters).__name__}",
                hint="for one value write (value,)",
            )
        if named:
            raise ProgrammingError(
                "the statement's parameters have names, but a sequence is given", hint="give a mapping"
            )
        wanted = max((place for place in self.places if isinstance(place, int)), default=-1) + 1
        if len(parameters) != wanted:
            raise ProgrammingError(f"the statement has {wanted} parameters, but {len(parameters)} are given")


NO_PARAMETERS = Template("")


def marked(text: str, style: str) -> Template:
    """The template of a statement that comes with parameters."""
    if MARKER in text:
        raise ProgrammingError(f"a statement cannot contain '{MARKER}'", hint="choose another name")
    places: list[Place] = []

    def replace(match: re.Match[str]) -> str:
        if match["skipped"] is not None:
            return match[0].replace("%%", "%") if style in ("format", "pyformat") else match[0]
        groups = match.groupdict()
        if groups.get("percent") is not None:
            return "%"
        if groups.get("name") is not None:
            places.append(groups["name"])
        elif groups.get("number") is not None:
            places.append(int(groups["number"]) - 1)
        else:
            places.append(len(places))
        return f":{MARKER}{len(places) - 1}"

    result = _PATTERNS[style].sub(replace, text)
    if len({type(place) for place in places}) > 1:
        raise ProgrammingError("the statement mixes %s with %(name)s", hint="use one of them")
    if -1 in places:
        raise ProgrammingError("the parameters of a statement count from :1")
    return Template(result, tuple(places))


def value_at(parameters: Parameters, place: Place) -> object:
    """One parameter's value."""
    try:
        return itemgetter(place)(parameters)
    except (LookupError, TypeError):
        raise ProgrammingError(f"the parameters lack a value for {_shown(place)}") from None


def literal(value: object) -> str:
    """The value as Spark SQL reads it, of the same type. A datetime without a zone is taken as UTC."""
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal() if value.is_finite():
            exponent = int(value.as_tuple().exponent)
            scale = max(-exponent, 0)
            digits = max(len(value.as_tuple().digits) + max(exponent, 0), scale)
            return f"CAST('{value:f}' AS DECIMAL({digits}, {scale}))"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex()}'"
        case dt.datetime():
            at = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
            return f"TIMESTAMP '{at.replace(tzinfo=None).isoformat(sep=' ')}+00:00'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    raise NotSupportedError(
        f"a parameter of this statement cannot be a {type(value).__name__}",
        hint="use None, bool, int, float, Decimal, str, bytes, date or datetime",
    )


def _shown(place: Place) -> str:
    return f"parameter {place + 1}" if isinstance(place, int) else f"the parameter '{place}'"
