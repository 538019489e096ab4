"""The kinds of values in a project file, each with a check that says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headgate.config.durations import DURATION_HINT, SIZE_HINT, parse_duration, parse_size

_MOST_NESTED_TYPES = 50
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def refuse(what: str, hint: str) -> PydanticCustomError:
    """A validation error with a hint; braces of the texts are kept as they are."""
    return PydanticCustomError("headgate", "{what}", {"what": what, "hint": hint})


def _checked(parse: Callable[[object], object], hint: str) -> BeforeValidator:
    def validate(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise refuse(str(error), hint) from None

    return BeforeValidator(validate)


def _identifier(value: str) -> str:
    if value.startswith("__"):
        raise refuse(f"the name {value!r} begins with two underscores", "such names belong to headgate; choose another")
    if not _IDENTIFIER.fullmatch(value):
        hint = "use letters, digits and underscores, not beginning with a digit"
        if "(" in value or ")" in value:
            hint = 'quote a type that contains a comma: "decimal(10,2)"'
        raise refuse(f"{value!r} is not a name", hint)
    return value


def _spark_type(value: str) -> str:
    if not value.strip():
        raise refuse("the column has no type", "give a Spark SQL type, such as bigint, string or decimal(10,2)")
    if value.count("(") != value.count(")"):
        raise refuse(f"{value!r} is not a type", 'quote a type that contains a comma: "decimal(10,2)"')
    if value.count("<") > _MOST_NESTED_TYPES:
        raise refuse(f"the type has more than {_MOST_NESTED_TYPES} parts in < >", "store it as a string")
    return value.strip()


def _not_a_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise refuse(f"{str(value).lower()} is not a number", "give a whole number")
    return value


def differ_without_case(names: dict[str, object]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise refuse(f"the names {other} and {name} differ only in case", "Spark takes them as one; rename one")


Name = Annotated[str, AfterValidator(_identifier)]
Duration = Annotated[timedelta, _checked(parse_duration, DURATION_HINT)]
Size = Annotated[int, _checked(parse_size, SIZE_HINT), Field(ge=1)]
Count = Annotated[int, BeforeValidator(_not_a_truth_value), Field(ge=1)]
CountOrNone = Annotated[int, BeforeValidator(_not_a_truth_value), Field(ge=0)]
Port = Annotated[int, BeforeValidator(_not_a_truth_value), Field(ge=0, le=65535)]
SparkType = Annotated[str, AfterValidator(_spark_type)]


class Settings(BaseModel):
    """Base of all models: frozen, strict about keys, defaults checked as well."""

    model_config = ConfigDict(extra="forbid", frozen=True)
