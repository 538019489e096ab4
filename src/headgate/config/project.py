"""Loads a project: a YAML file or a dict becomes a `Project`, or a `ConfigError` with the line and a remedy for each mistake."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headgate.config.document import KeyPath, Locate, locate_key, read_document, substitute
from headgate.config.settings import Project
from headgate.config.sources import SOURCE_TYPES
from headgate.errors import ConfigError, HeadgateError, Problems, raise_all


def load_project(source: str | Path | Mapping[str, object]) -> Project:
    """The project of a file (or of the `headgate.yml` in a folder) or of a dict with the same keys.

    Relative paths in a file start at its folder, those of a dict at the working folder.
    """
    if isinstance(source, Mapping):
        return _validate(source, locate_key, Path.cwd())
    file = Path(source)
    if (file / "headgate.yml").is_file():
        file = file / "headgate.yml"
    data, locate = read_document(file)
    return _validate(data, locate, file.absolute().parent)


def _validate(data: Mapping[str, object], locate: Locate, folder: Path) -> Project:
    problems, wrong = Problems(), Problems()
    values = substitute(data, locate, problems=problems)
    with wrong.collected():
        project = check_project(values, locate, folder)
    # A value without its variable is wrong because of that.
    places = [problem.where for problem in problems]
    problems += [problem for problem in wrong if problem.where not in places]
    raise_all(_in_order(problems))
    return project


def check_project(values: object, locate: Locate, folder: Path) -> Project:
    """The project of values in which variables are filled in already, or all that is wrong with them."""
    try:
        return Project.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        problems = Problems()
        for detail in error.errors():
            what, hint = explain(path_of(detail), detail)
            problems.append(ConfigError(what, where=locate(path_of(detail)), hint=hint))
        raise_all(_in_order(problems))
        raise


def _in_order(problems: Iterable[HeadgateError]) -> list[HeadgateError]:
    """As they stand in the file; several of one line keep their order."""
    return sorted(problems, key=lambda problem: (problem.where and problem.where.line) or 0)


def path_of(detail: ErrorDetails) -> KeyPath:
    """The error's path in the file; pydantic adds parts for a bad mapping key and for a source's type."""
    path = tuple(part for part in detail["loc"] if part != "[key]")
    if path[:1] == ("sources",):
        path = (*path[:2], *(path[3:] if path[2:3] and path[2] in SOURCE_TYPES else path[2:]))
        if detail["type"].startswith("union_tag"):
            path = (*path, "type")
    return path


def explain(path: KeyPath, detail: ErrorDetails) -> tuple[str, str | None]:
    """What is wrong and what to do about it."""
    dotted = ".".join(str(part) for part in path)
    context = detail.get("ctx", {})
    match detail["type"]:
        case "headgate":
            return (f"{dotted}: {context['what']}" if dotted else str(context["what"])), str(context["hint"])
        case "extra_forbidden":
            return f"unknown key {dotted}", _did_you_mean(str(path[-1]), _keys_at(detail["loc"][:-1]))
        case "union_tag_invalid":
            return f"{dotted} cannot be {context['tag']!r}", f"it is one of {context['expected_tags']}"
        case "union_tag_not_found":
            return f"the key {dotted} is missing", f"add type: {' or '.join(SOURCE_TYPES)}"
        case "missing":
            return f"the key {dotted} is missing", f"add {path[-1]}: to {_owner(path)}"
        case "literal_error":
            return f"{dotted} cannot be {detail['input']!r}", f"it is one of {context['expected']}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{dotted} must be a mapping, not {detail['input']!r}", _known_keys(_keys_at(detail["loc"]))
        case "tuple_type":
            return f"{dotted} must be a list, not {detail['input']!r}", "write [a, b], or one `- item` per line"
        case "greater_than_equal":
            return f"{dotted} is too small: {detail['input']!r}", f"the least is {context['ge']}"
        case "less_than_equal":
            return f"{dotted} is too large: {detail['input']!r}", f"the most is {context['le']}"
        case "string_type":
            return f"{dotted} must be a text, not {detail['input']!r}", "put it in quotes"
        case "int_parsing" | "int_from_float" | "int_type":
            return f"{dotted} must be a whole number, not {detail['input']!r}", "give a whole number"
        case _:
            return f"{dotted}: {detail['msg']}", None


def _owner(path: KeyPath) -> str:
    return ".".join(str(part) for part in path[:-1]) or "the project"


def _did_you_mean(name: str, known: tuple[str, ...]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else _known_keys(known)


def _known_keys(known: tuple[str, ...]) -> str | None:
    return f"the known keys are {', '.join(known)}" if known else None


def _keys_at(path: KeyPath) -> tuple[str, ...]:
    """The keys that the settings know at a path of pydantic's; none where the keys are the user's own names."""
    found: object = Project
    for part in path:
        if part in SOURCE_TYPES and SOURCE_TYPES[str(part)] in typing.get_args(found):
            found = SOURCE_TYPES[str(part)]
        elif isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(str(part))
            found = field.annotation if field is not None else None
        else:
            # A dict or tuple: its last parameter that is a model describes the items.
            found = next((option for option in reversed(typing.get_args(found)) if option is not ...), None)
        if type(None) in typing.get_args(found):
            found = next((option for option in typing.get_args(found) if option is not type(None)), None)
        if typing.get_origin(found) is typing.Annotated:
            found = typing.get_args(found)[0]
    if isinstance(found, type) and issubclass(found, BaseModel):
        return tuple(field.alias or name for name, field in found.model_fields.items())
    return ()
