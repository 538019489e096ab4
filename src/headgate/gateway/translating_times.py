"""Dates and times of PostgreSQL in Spark's words, in which sessions are in UTC.

An instant (timestamp with time zone) has no fields of its own: its day or hour is that of the connection's TimeZone. There such an
instant becomes a time without zone first, and goes back afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from headgate.gateway.expression_types import DATES, INSTANTS, INTEGERS, LOCAL, is_interval, is_of, is_text
from headgate.gateway.problems import NOT_SUPPORTED, WireProblem
from headgate.gateway.scoped_columns import TYPES

Zone = str | None
"""The connection's TimeZone; None for UTC."""
TimeRule = Callable[[exp.Expr, Zone], exp.Expr]

_WITHOUT_OFFSET = re.compile(r"\s*\d+-\d+-\d+(?:[ T](\d+:\d+(?::\d+(?:\.\d*)?)?))?\s*")
_WHOLE = exp.DataType.build("decimal(20, 0)")
_FORMATS = {
    "YYYY": "yyyy",
    "YY": "yy",
    "FMMonth": "MMMM",
    "Mon": "MMM",
    "MM": "MM",
    "FMMM": "M",
    "FMDay": "EEEE",
    "Dy": "EEE",
    "DDD": "DDD",
    "DD": "dd",
    "FMDD": "d",
    "HH24": "HH",
    "HH12": "hh",
    "HH": "hh",
    "MI": "mm",
    "SS": "ss",
    "MS": "SSS",
    "US": "SSSSSS",
    "AM": "a",
    "PM": "a",
    "Q": "q",
}
_PATTERN = re.compile("|".join(sorted(_FORMATS, key=len, reverse=True)) + r'|"([^"]*)"|([A-Za-z]+)|(.)', re.DOTALL)


def _called(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _local(node: exp.Expr, zone: Zone) -> exp.Expr:
    """An instant as the clock of the zone shows it, in a type of instants."""
    return node if zone is None else _called("FROM_UTC_TIMESTAMP", node, exp.Literal.string(zone))


def _instant(node: exp.Expr, zone: Zone) -> exp.Expr:
    """The instant at which the zone's clock shows this."""
    return node if zone is None else _called("TO_UTC_TIMESTAMP", node, exp.Literal.string(zone))


def _of_zone(text: exp.Expr, zone: str) -> exp.Expr:
    """The text of an instant; one without an offset is a time of the zone."""
    found = _WITHOUT_OFFSET.fullmatch(text.name)
    if found is None:
        return text
    return exp.Literal.string(f"{text.name.strip()}{'' if found[1] else ' 00:00:00'} {zone}")


def _cast(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.cast(node, kind, dialect="spark")


def _truncated(node: exp.Expr, zone: Zone) -> exp.Expr:
    """date_trunc(unit, time)."""
    given = node.args["this"]
    unit = exp.Literal.string(node.args["unit"].name)
    if is_of(given, LOCAL):
        return _cast(_called("DATE_TRUNC", unit, given), "timestamp_ntz")
    if is_of(given, DATES):
        return _instant(_called("DATE_TRUNC", unit, given), zone)
    return _instant(_called("DATE_TRUNC", unit, _local(given, zone)), zone)


def _extracted(node: exp.Expr, zone: Zone) -> exp.Expr:
    """extract(field from time), which is numeric."""
    field, given = node.this.name.upper(), node.expression
    if field == "EPOCH":
        return _epoch(given)
    if is_of(given, INSTANTS):
        given = _local(given, zone)
    match field:
        case "DOW":
            made: exp.Expr = exp.Sub(this=_called("DAYOFWEEK", given), expression=exp.Literal.number(1))
        case "ISODOW":
            made = exp.Add(this=_called("WEEKDAY", given), expression=exp.Literal.number(1))
        case "ISOYEAR":
            made = exp.Extract(this=exp.var("YEAROFWEEK"), expression=given)
        case "SECOND" | "SECONDS":
            return exp.Extract(this=exp.var("SECOND"), expression=given)
        case "MICROSECONDS" | "MILLISECONDS" | "CENTURY" | "DECADE" | "MILLENNIUM" | "JULIAN" | "TIMEZONE":
            raise WireProblem(NOT_SUPPORTED, f"extract({field.lower()} from …) is not translated")
        case _:
            made = exp.Extract(this=exp.var(field), expression=given)
    return exp.Cast(this=made, to=_WHOLE.copy())


def _epoch(given: exp.Expr) -> exp.Expr:
    if is_interval(given) or (
        isinstance(given.unnest(), exp.Sub) and is_of(given.unnest().args["this"], (*INSTANTS, *LOCAL))
    ):
        parts = [
            exp.Mul(this=exp.Extract(this=exp.var(unit), expression=given.copy()), expression=exp.Literal.number(size))
            for unit, size in (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1))
        ]
        total: exp.Expr = parts[0]
        for part in parts[1:]:
            total = exp.Add(this=total, expression=part)
        return _cast(exp.Paren(this=total), "decimal(20, 6)")
    if not is_of(given, (*INSTANTS, *LOCAL, *DATES)):
        raise WireProblem(
            NOT_SUPPORTED, "extract(epoch from …) needs a type that is known", hint="cast it, as in x::timestamptz"
        )
    micros = _called("UNIX_MICROS", given if is_of(given, INSTANTS) else _cast(given, "timestamp"))
    return _cast(
        exp.Div(this=_cast(micros, "decimal(20, 0)"), expression=exp.Literal.number(1_000_000)), "decimal(20, 6)"
    )


def _at_time_zone(node: exp.Expr, zone: Zone) -> exp.Expr:
    """An instant as a zone's clock shows it, or the instant at which a zone's clock shows a time."""
    given, place = node.args["this"], node.args["zone"]
    if is_of(given, LOCAL):
        return _called("TO_UTC_TIMESTAMP", _cast(given, "timestamp"), place)
    if is_of(given, INSTANTS):
        return _cast(_called("FROM_UTC_TIMESTAMP", given, place), "timestamp_ntz")
    raise WireProblem(
        NOT_SUPPORTED,
        "AT TIME ZONE needs a type that is known",
        hint="cast it, as in x::timestamptz AT TIME ZONE 'UTC'",
    )


def _shifted(node: exp.Expr, zone: Zone) -> exp.Expr:
    """date ± interval is a timestamp; an instant ± days keeps the hour of the zone; date - date is a number of days."""
    left, right = node.args["this"], node.expression
    if is_of(left, DATES):
        if isinstance(node, exp.Sub) and is_of(right, DATES):
            return _called("DATEDIFF", left, right)
        if is_interval(right):
            node.set("this", _cast(left, "timestamp_ntz"))
    elif is_interval(left) and is_of(right, DATES):
        node.set("expression", _cast(right, "timestamp_ntz"))
    elif zone is not None and is_of(left, INSTANTS) and is_interval(right) and _has_days(right):
        node.set("this", _local(left, zone))
        return _instant(exp.Paren(this=node.copy()), zone)
    return node


def _has_days(node: exp.Expr) -> bool:
    """Whether an interval is of days, or longer units, which are as long as the zone's calendar has them; hours are hours."""
    interval = node.unnest()
    if not isinstance(interval, exp.Interval):
        return False
    said = f"{interval.this.name if interval.this is not None else ''} {interval.args.get('unit') or ''}".lower()
    has_days = re.search(r"day|week|month|year|dec|cent", said) is not None
    if has_days and re.search(r"hour|min|sec|:", said):
        raise WireProblem(
            NOT_SUPPORTED,
            "an interval of days and hours is added to an instant only while TimeZone is UTC",
            hint="add the days and the hours one after the other, or SET TimeZone = 'UTC'",
        )
    return has_days


def _casted(node: exp.Expr, zone: Zone) -> exp.Expr:
    to, given = node.args["to"], node.args["this"]
    if to.this == TYPES.INTERVAL and is_text(given):
        return exp.Interval(this=given)
    if to.this in LOCAL:
        to.set("this", TYPES.TIMESTAMPNTZ)
        if is_of(given, INSTANTS):
            node.set("this", _local(given, zone))
    elif to.this in DATES and is_of(given, INSTANTS):
        node.set("this", _local(given, zone))
    elif to.this in INSTANTS and zone is not None:
        if is_text(given):
            node.set("this", _of_zone(given, zone))
        elif is_of(given, (*LOCAL, *DATES)):
            return _instant(node.copy(), zone)
        elif not is_of(given, INSTANTS):
            raise WireProblem(
                NOT_SUPPORTED,
                "a text that is no literal is read as an instant only while TimeZone is UTC",
                hint="SET TimeZone = 'UTC'",
            )
    elif to.this in exp.DataType.TEXT_TYPES and zone is not None and is_of(given, INSTANTS):
        raise WireProblem(
            NOT_SUPPORTED,
            "an instant becomes a text only while TimeZone is UTC",
            hint="use to_char, or SET TimeZone = 'UTC'",
        )
    return node


def _series(node: exp.Expr, zone: Zone) -> exp.Expr:
    """generate_series of dates is one of instants."""
    for place in ("start", "end"):
        if is_of(node.args[place], DATES):
            if zone is not None:
                raise WireProblem(
                    NOT_SUPPORTED,
                    "a series of dates is translated only while TimeZone is UTC",
                    hint="cast its ends to timestamp, or SET TimeZone = 'UTC'",
                )
            node.set(place, _cast(node.args[place], "timestamp"))
    return node


def _today(node: exp.Expr, zone: Zone) -> exp.Expr:
    return node if zone is None else _cast(_local(exp.CurrentTimestamp(), zone), "date")


def _compared(node: exp.Expr, zone: Zone) -> exp.Expr:
    """An instant compared with a text without an offset: the text is a time of the zone."""
    if zone is None:
        return node
    for place, other in (("this", "expression"), ("expression", "this"), ("low", "this"), ("high", "this")):
        text, instant = node.args.get(place), node.args.get(other)
        if text is None or instant is None or not (is_text(text) and is_of(instant, INSTANTS)):
            continue
        node.set(place, _of_zone(text, zone))
    return node


def _formatted(node: exp.Expr, zone: Zone) -> exp.Expr:
    """to_char(time, format), to_date and to_timestamp(text, format)."""
    name, arguments = node.name.lower(), node.expressions
    if name not in ("to_char", "to_date", "to_timestamp"):
        return node
    if name == "to_timestamp" and len(arguments) == 1:
        return _called("TIMESTAMP_SECONDS", arguments[0])
    if len(arguments) != 2 or not is_text(arguments[1]):
        raise WireProblem(NOT_SUPPORTED, f"{name} is translated with a format in quotes")
    given, pattern = arguments[0], exp.Literal.string(_spark_format(arguments[1].name))
    if name == "to_date":
        return _called("TO_DATE", given, pattern)
    if name == "to_timestamp":
        return _instant(_called("TO_TIMESTAMP", given, pattern), zone)
    if is_of(given, (*INTEGERS, TYPES.DECIMAL, TYPES.DOUBLE, TYPES.FLOAT)):
        raise WireProblem(
            NOT_SUPPORTED, "to_char of numbers is not translated", hint="cast to numeric(p, s) and to text"
        )
    return _called("DATE_FORMAT", _local(given, zone) if is_of(given, INSTANTS) else given, pattern)


def _spark_format(given: str) -> str:
    made = []
    for found in _PATTERN.finditer(given):
        quoted, unknown, other = found.groups()
        if unknown is not None:
            raise WireProblem(
                NOT_SUPPORTED,
                f"the format {unknown!r} is not translated",
                hint=f"there are {', '.join(_FORMATS)}, and texts in double quotes",
            )
        if quoted is not None:
            made.append(f"'{quoted}'" if quoted else "")
        elif other is not None:
            made.append("''" if other == "'" else other)
        else:
            made.append(_FORMATS[found[0]])
    return "".join(made)


TIME_RULES: Mapping[type[exp.Expr], TimeRule] = {
    exp.TimestampTrunc: _truncated,
    exp.Extract: _extracted,
    exp.AtTimeZone: _at_time_zone,
    exp.Add: _shifted,
    exp.Sub: _shifted,
    exp.Cast: _casted,
    exp.CurrentDate: _today,
    **dict.fromkeys((exp.GenerateSeries, exp.ExplodingGenerateSeries), _series),
    exp.Anonymous: _formatted,
    exp.Between: _compared,
    exp.EQ: _compared,
    exp.NEQ: _compared,
    exp.LT: _compared,
    exp.LTE: _compared,
    exp.GT: _compared,
    exp.GTE: _compared,
}
