"""What can go wrong at the service itself, and the status and body that any error is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from headgate.errors import (
    CorruptWarehouse,
    DefiniteError,
    EnvironmentProblem,
    Fenced,
    FlowFailed,
    HeadgateError,
    MultipleProblems,
    SnapshotGone,
    TooStale,
    TransientError,
    WarehouseBusy,
)
from headgate.remedies import SURFACES, Surface, in_words_of


class NotFound(DefiniteError):
    """The service has no such thing."""


class Unauthorized(DefiniteError):
    """The token is missing or wrong."""


class ForeignRequest(DefiniteError):
    """The request came by a name or from a page that is not the service's own."""


class NotPermitted(DefiniteError):
    """The role that the token belongs to may not do this."""


class RequestTooLarge(DefiniteError):
    """The body of the request is larger than the service takes."""


class NotReady(TransientError):
    """The warehouse is not open, or does not answer."""


class TooManyQueries(TransientError):
    """As many queries as the service takes are running."""


class TooManyConnections(TransientError):
    """As many connections as the service takes are being answered."""


class QueryTimedOut(TransientError):
    """The query took longer than the service allows."""


class RequestTimedOut(TransientError):
    """The client did not send its request in time."""


class UnexpectedFailure(HeadgateError):
    """A mistake of headgate's own."""


_STATUSES: dict[type[BaseException], HTTPStatus] = {
    DefiniteError: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    ForeignRequest: HTTPStatus.FORBIDDEN,
    NotPermitted: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    SnapshotGone: HTTPStatus.NOT_FOUND,
    RequestTimedOut: HTTPStatus.REQUEST_TIMEOUT,
    FlowFailed: HTTPStatus.CONFLICT,
    RequestTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    TooManyQueries: HTTPStatus.TOO_MANY_REQUESTS,
    TransientError: HTTPStatus.SERVICE_UNAVAILABLE,
    WarehouseBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    Fenced: HTTPStatus.SERVICE_UNAVAILABLE,
    TooStale: HTTPStatus.GATEWAY_TIMEOUT,
    QueryTimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    CorruptWarehouse: HTTPStatus.INTERNAL_SERVER_ERROR,
    EnvironmentProblem: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(error: BaseException) -> int:
    """The HTTP status of an error: that of its nearest class that has one; of several problems, the first one's."""
    if isinstance(error, MultipleProblems) and error.problems:
        error = error.problems[0]
    kinds = type(error).__mro__
    return next((_STATUSES[kind] for kind in kinds if kind in _STATUSES), HTTPStatus.INTERNAL_SERVER_ERROR)


def headers_of(error: BaseException) -> dict[str, str]:
    """When to come again, and how to say who one is."""
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TransientError) and not isinstance(error, TooStale | QueryTimedOut | RequestTimedOut):
        return {"Retry-After": "1"}
    return {}


SURFACE = "headgate-surface"
"""The header by which a client says in whose words it is to be told what to do."""


def in_words_for(headers: Mapping[str, str], content: Any) -> Any:
    """The content of a response with its hints in the words of whoever reads it."""
    said = headers.get(SURFACE, "http")
    surface: Surface = next((known for known in SURFACES if known == said), "http")

    def told(value: Any, is_advice: bool = False) -> Any:
        match value:
            case str():
                return in_words_of(surface, value) if is_advice else value
            case dict():
                return {name: told(field, is_advice or name in _ADVICE) for name, field in value.items()}
            case list():
                return [told(item, is_advice) for item in value]
        return value

    return told(content)


_ADVICE = frozenset(("hint", "alarms"))


def error_to_json(error: BaseException) -> dict[str, Any]:
    """What happened, where, and what to do, which `in_words_for` puts into the reader's words."""
    if isinstance(error, HeadgateError):
        where = None if error.where is None else str(error.where)
        told: dict[str, Any] = {"kind": type(error).__name__, "what": error.what, "where": where, "hint": error.advice}
        if isinstance(error, MultipleProblems):
            told["problems"] = [error_to_json(problem) for problem in error.problems]
        return told
    return {"kind": type(error).__name__, "what": str(error), "where": None, "hint": None}
