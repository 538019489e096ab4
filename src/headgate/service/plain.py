"""Values as plain JSON types: durations in seconds, instants in ISO 8601, bytes in base64, errors as what happened and what to do."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from headgate.scheduling.receipt import Receipt
from headgate.service.problems import error_to_json


def to_plain(value: object) -> Any:
    """The value in JSON's types; a dataclass becomes an object of its fields."""
    match value:
        case Enum():
            return to_plain(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case timedelta():
            return value.total_seconds()
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case Receipt():
            return value.to_json()
        case BaseException():
            return error_to_json(value)
        case BaseModel():
            return {name: to_plain(field) for name, field in value}
        case Mapping():
            return {str(key): to_plain(field) for key, field in value.items()}
        case Set():
            return sorted(map(to_plain, value))
        case list() | tuple():
            return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)
