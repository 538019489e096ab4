"""A YAML document that remembers the line of every key, with `${NAME}` and `${NAME:-default}` filled in.

Only values are substituted, after parsing, so a variable's text is never read as YAML. `$${` stands for `${`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from headgate.errors import ConfigError, Location

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the document's root to a value."""

Locate = Callable[[KeyPath], Location]

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def read_document(file: Path) -> tuple[dict[str, object], Locate]:
    """The document's root mapping and a function that finds where a value stands."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no project file {file}", hint="give the path of a headgate.yml, or create it"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{file} is a folder", hint=f"give the path of the file, such as {file}/headgate.yml"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError("the project file is not UTF-8 text", where=Location(str(file))) from None
    except OSError as error:
        raise ConfigError(f"cannot read the project file: {error.strerror}", where=Location(str(file))) from None
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines = _Lines(file)
        if node is not None:
            lines.visit(node, ())
        data = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Location(str(file), mark.line + 1 if mark is not None else None)
        what = f"this is not valid YAML: {error.problem or error.context}"
        raise ConfigError(what, where=where, hint="check the indentation, colons and quotes here") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"this is not valid YAML: {error}", where=Location(str(file))) from None
    finally:
        loader.dispose()
    if data is None:
        raise ConfigError(
            "the project file is empty", where=Location(str(file)), hint="it needs at least name and storage"
        )
    if not isinstance(data, dict):
        raise ConfigError(
            f"the project file holds a {type(data).__name__}, not a mapping",
            where=Location(str(file), 1),
            hint="write `key: value` lines, starting with name and storage",
        )
    return data, lines.locate


def locate_key(path: KeyPath) -> Location:
    """Where a value of a Python dict stands: its dotted path."""
    return Location(".".join(str(part) for part in path) or "project")


def substitute(
    value: object, locate: Locate, environment: Mapping[str, str] = os.environ, path: KeyPath = ()
) -> object:
    """The value with every variable of its texts replaced."""
    if isinstance(value, Mapping):
        return {key: substitute(item, locate, environment, (*path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute(item, locate, environment, (*path, index)) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if match[0] == "$${":
            return "${"
        if name is None:
            raise ConfigError(
                f"`${{` does not begin a variable in {value!r}",
                where=locate(path),
                hint="write ${NAME} or ${NAME:-default}; $${ stands for ${ itself",
            )
        found = environment.get(name)
        if default is not None:
            return found or default
        if found is None:
            raise ConfigError(
                f"the environment variable {name} is not set",
                where=locate(path),
                hint=f"set it, or give a default: ${{{name}:-default}}",
            )
        return found

    return _VARIABLE.sub(replacement, value)


class _Lines:
    """The line of every key and list item of one file."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._lines: dict[KeyPath, int] = {}

    def visit(self, node: yaml.Node, path: KeyPath, within: tuple[yaml.Node, ...] = ()) -> None:
        if any(node is parent for parent in within):
            where = Location(self._file, node.start_mark.line + 1)
            raise ConfigError("this YAML value contains itself", where=where, hint="remove the alias")
        self._lines.setdefault(path, node.start_mark.line + 1)
        within = (*within, node)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, (*path, index), within)
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                if key.tag != "tag:yaml.org,2002:str":
                    text = key.value if isinstance(key, yaml.ScalarNode) else "a key"
                    raise ConfigError(
                        f"{text} is not a text key: YAML reads it as {key.tag.rpartition(':')[2]}",
                        where=Location(self._file, line),
                        hint=f'quote it: "{text}"',
                    )
                if key.value in first:
                    raise ConfigError(
                        f"the key {key.value} stands here twice",
                        where=Location(self._file, line),
                        hint=f"it was first given in line {first[key.value]}; keep one",
                    )
                first[key.value] = line
                self._lines[(*path, key.value)] = line
                self.visit(value, (*path, key.value), within)

    def locate(self, path: KeyPath) -> Location:
        """The line of a value, or of the nearest part around it that stands in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return Location(self._file, self._lines.get(path))
