"""What clients send: bodies of requests, read within limits and checked field by field."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request

from headgate.errors import DefiniteError
from headgate.service.formats import CONTENT_TYPES, Format
from headgate.service.gate import ROLE
from headgate.service.limits import ServiceLimits
from headgate.service.problems import RequestTimedOut, RequestTooLarge
from headgate.text import require_texts

_NUMBER = (int, float)
_QUERY_FIELDS: Mapping[str, tuple[type, ...]] = {
    "sql": (str,),
    "max_staleness": (str, *_NUMBER),
    "deadline": (str, *_NUMBER),
    "when_stale": (str,),
    "job": (int,),
    "session": (str,),
    "format": (str,),
    "limit": (int,),
}
CHANGE_FIELDS: Mapping[str, tuple[type, ...]] = {"name": (str,), "value": (object,), "reset": (bool,), "who": (str,)}
BACKUP_FIELDS: Mapping[str, tuple[type, ...]] = {"folder": (str,)}
LOAD_FIELDS: Mapping[str, tuple[type, ...]] = {"first": (str,)}
QUEUE_FIELDS: Mapping[str, tuple[type, ...]] = {"source": (str,), "partition": (int,), "other": (int,)}
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
LONGEST_NAME = 200
_MOST_DIGITS = 18
"""Every such number fits into 64 bits."""


@dataclass(frozen=True, slots=True)
class QueryBody:
    """A query as a client asks for it."""

    sql: str
    max_staleness: str | float | None = None
    deadline: str | float | None = None
    when_stale: str | None = None
    job: int | None = None
    session: str | None = None
    format: Format = "json"
    limit: int | None = None
    """Rows after which the answer ends."""


async def read_query(request: Request, limits: ServiceLimits) -> QueryBody:
    fields = await read_fields(request, limits, _QUERY_FIELDS)
    sql = fields.pop("sql", None)
    if sql is None or not sql.strip():
        raise DefiniteError("the request has no query", hint='send {"sql": "SELECT …"}')
    for name in ("job", "limit"):
        if fields.get(name, 0) < 0:
            raise DefiniteError(f"{name} is negative: {fields[name]}", hint="give a whole number from 0 on")
    if not 0 < len(fields.get("session", "_")) <= LONGEST_NAME:
        raise DefiniteError("the name of the session is empty or too long", hint=f"use up to {LONGEST_NAME} characters")
    fields["format"] = _format(fields.get("format"), request.headers.get("accept", ""))
    return QueryBody(sql, **fields)


@dataclass(frozen=True, slots=True)
class ChangeBody:
    """A setting that a client changes, or takes back to what the project file says."""

    name: str
    value: object
    is_reset: bool
    who: str


async def read_change(request: Request, limits: ServiceLimits) -> ChangeBody:
    fields = await read_fields(request, limits, CHANGE_FIELDS)
    is_reset = fields.get("reset", False)
    if "name" not in fields or ("value" in fields) == is_reset:
        raise DefiniteError(
            "a change needs a name and a value", hint='send {"name": "…", "value": …} or {"name": "…", "reset": true}'
        )
    role: str | None = request.scope.get(ROLE)
    who: str = fields.get("who", "the service" if role is None else role)
    if not (0 < len(who) <= LONGEST_NAME and who.isprintable()):
        raise DefiniteError("who is empty, too long or not printable", hint=f"use up to {LONGEST_NAME} characters")
    if role is not None and who != role:
        who = f"{who} (as {role})"
    return ChangeBody(fields["name"], fields.get("value"), is_reset, who)


RANGE_FIELDS: Mapping[str, tuple[type, ...]] = {
    "table": (str,),
    "split": (str,),
    "merge": (int,),
    "bounds": (list,),
    "count": (int,),
}


def range_change(fields: dict[str, Any]) -> dict[str, Any]:
    """A change of ranges: the table, and one of three ways to cut it."""
    ways = [name for name in ("split", "merge", "bounds", "count") if name in fields]
    bounds = fields.get("bounds", [])
    if "table" not in fields or len(ways) != 1 or not all(isinstance(bound, str) for bound in bounds):
        raise DefiniteError(
            "a change of ranges needs a table and one of split, merge, bounds and count",
            hint='send {"table": "…", "split": "100"}; merge takes a number, bounds a list of texts, count a number',
        )
    return fields


async def read_folder(request: Request, limits: ServiceLimits) -> Path:
    """A folder of the service's machine; one that is not absolute would mean another place there than here."""
    fields = await read_fields(request, limits, BACKUP_FIELDS)
    folder = fields.get("folder", "")
    if not (Path(folder).is_absolute() and folder.isprintable()):
        raise DefiniteError(
            "the request names no absolute folder", hint='send {"folder": "/…"}, a folder of the service\'s machine'
        )
    return Path(folder)


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A partition to split, or two to merge."""

    source: str
    partition: int
    other: int | None = None


async def read_queue_change(request: Request, limits: ServiceLimits) -> QueueChange:
    fields = await read_fields(request, limits, QUEUE_FIELDS)
    if "source" not in fields or "partition" not in fields:
        raise DefiniteError(
            "the request names no partition", hint='send {"source": …, "partition": …} to split it; "other" merges both'
        )
    return QueueChange(**fields)


async def read_fields(request: Request, limits: ServiceLimits, known: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The fields of a JSON object, each of one of its types; those that are null are left out. No body is no field."""
    body = await _read(request, limits)
    if not body:
        return {}
    try:
        fields = json.loads(body, parse_int=_integer, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise DefiniteError(
            "the body of the request is not JSON that can be read: it is nested too deeply", hint="send one JSON object"
        ) from None
    except ValueError as error:
        raise DefiniteError(f"the body of the request is not JSON: {error}", hint="send one JSON object") from None
    if not isinstance(fields, dict):
        raise DefiniteError("the body of the request is not a JSON object", hint="send one JSON object")
    require_texts(fields, "the request")
    for name, value in fields.items():
        if name not in known:
            raise DefiniteError(f"the request has an unknown field {name!r}", hint=f"there are {', '.join(known)}")
        types = known[name]
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if value is not None and object not in types and not fits:
            wanted = " or ".join(_WORDS[kind] for kind in types)
            raise DefiniteError(f"{name} cannot be {json.dumps(value)[:100]}", hint=f"it is {wanted}")
    return {name: value for name, value in fields.items() if value is not None or object in known[name]}


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:_MOST_DIGITS]} is not a number that JSON has")
    return float(text)


async def _read(request: Request, limits: ServiceLimits) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.client.total_seconds()):
            async for part in request.stream():
                body += part
                if len(body) > limits.request_bytes:
                    raise RequestTooLarge(
                        f"the request is larger than {limits.request_bytes:,} bytes",
                        hint="send less, or raise the service's limit",
                    )
    except TimeoutError:
        raise RequestTimedOut("the request did not arrive in time", hint="send it again, faster") from None
    return bytes(body)


def _format(said: str | None, accept: str) -> Format:
    """The format that the body says, else the one that the Accept header names, else JSON."""
    if said is None:
        return next((known for known, kind in CONTENT_TYPES.items() if kind.partition(";")[0] in accept), "json")
    for known in CONTENT_TYPES:
        if said == known:
            return known
    raise DefiniteError(f"the format cannot be {said!r}", hint=f"it is one of {', '.join(CONTENT_TYPES)}")
