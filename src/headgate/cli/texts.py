"""Values as people read them in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from headgate.tabular import plain

NULL = "NULL"


def shown(value: object) -> str:
    """The value in one line of a table; what could steer a terminal is spelled out."""
    match value:
        case None:
            return NULL
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat(sep=" ")
        case bytes():
            return value.hex()
        case Mapping() | list() | tuple():
            return _printable(json.dumps(plain(value), ensure_ascii=False))
        case _:
            return _printable(str(plain(value)))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
