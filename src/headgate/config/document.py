"""A YAML document that remembers the line of every key, with `${NAME}` and `${NAME:-default}` filled in.

Only values are substituted, after parsing, so a variable's text is never read as YAML. `$${` stands for `${`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from headgate.errors import ConfigError, Location, Problems, all_problems, raise_all
from headgate.text import MOST_NESTED_VALUES, require_text

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the document's root to a value."""

Locate = Callable[[KeyPath], Location]

LONGEST_DOCUMENT = 1 << 18
"""Characters of a project file: YAML is read slowly."""
MOST_VALUES = 100_000
"""Keys and values of a document, those that aliases stand for counted each time."""

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def read_document(file: Path) -> tuple[dict[str, object], Locate]:
    """The document's root mapping and a function that finds where a value stands."""
    try:
        with file.open(encoding="utf-8") as stream:
            # One more than the limit: the file may have no end.
            text = stream.read(LONGEST_DOCUMENT + 1)
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
    data, lines = _parsed(text, "the project file", str(file))
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


def read_value(text: str, name: str) -> object:
    """One value, as a document would have it behind a key of that name."""
    return _parsed(text, "the value", name)[0]


def _parsed(text: str, what: str, file: str) -> tuple[object, _LineNumbers]:
    """The values of a text, read within bounds, and the line of each."""
    require_text(text, what, where=Location(file), most=LONGEST_DOCUMENT, error=ConfigError)
    problems = Problems()
    lines = _LineNumbers(file, problems)
    try:
        loader = _Loader(text, file)
        node = loader.get_single_node()
        if node is None:
            return None, lines
        lines.visit(node, ())
        raise_all(problems)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Location(file, mark.line + 1 if mark is not None else None)
        problem = f"this is not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, where=where, hint="check the indentation, colons and quotes here") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not valid YAML: {error}", where=Location(file)) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # A value that is none of its tag's kind, such as `!!bool maybe`, fails in the constructor in whatever way it does.
        why = f": {str(error).partition(';')[0]}" if isinstance(error, ValueError) else ""
        raise ConfigError(
            f"a value does not fit its type{why}", where=Location(file), hint="quote it, or correct its tag (!!…)"
        ) from None


def locate_key(path: KeyPath) -> Location:
    """Where a value of a Python dict stands: its dotted path."""
    return Location(".".join(str(part) for part in path) or "project")


def substitute(
    value: object,
    locate: Locate,
    environment: Mapping[str, str] = os.environ,
    path: KeyPath = (),
    problems: Problems | None = None,
) -> object:
    """The value with every variable of its texts replaced; a text that cannot be stays where `problems` are collected."""
    if len(path) > MOST_NESTED_VALUES:
        raise _too_deep(locate(path[:MOST_NESTED_VALUES]))
    with all_problems(problems) as wrong:
        if isinstance(value, Mapping):
            for key in value:
                require_text(str(key), "a key", where=locate(path), error=ConfigError)
            return {key: substitute(item, locate, environment, (*path, key), wrong) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [substitute(item, locate, environment, (*path, place), wrong) for place, item in enumerate(value)]
        if isinstance(value, str):
            with wrong.collected():
                return _substituted(value, locate, environment, path)
    return value


def _substituted(value: str, locate: Locate, environment: Mapping[str, str], path: KeyPath) -> str:

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

    filled = _VARIABLE.sub(replacement, value)
    return require_text(filled, "this value", where=locate(path), error=ConfigError)


def _too_deep(where: Location) -> ConfigError:
    what = f"the values are nested more than {MOST_NESTED_VALUES} levels deep"
    return ConfigError(what, where=where, hint="a project needs four or five levels")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Refuses what is nested too deeply before it is read on."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:
        self._depth += 1
        if self._depth > MOST_NESTED_VALUES + 1:
            raise _too_deep(Location(self._file, self.peek_event().start_mark.line + 1))
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _LineNumbers:
    """The line of every key and list item of one file."""

    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._lines: dict[KeyPath, int] = {}
        self._values = 0

    def visit(self, node: yaml.Node, path: KeyPath, within: tuple[yaml.Node, ...] = ()) -> None:
        if any(node is parent for parent in within):
            where = Location(self._file, node.start_mark.line + 1)
            raise ConfigError("this YAML value contains itself", where=where, hint="remove the alias")
        self._values += 1
        if self._values > MOST_VALUES:
            raise ConfigError(
                f"there are more than {MOST_VALUES:,} values here, with those that its aliases stand for",
                where=Location(self._file, node.start_mark.line + 1),
                hint="write fewer aliases (*name)",
            )
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
                    self.visit(value, (*path, "<<"), within)
                    continue
                if key.tag != "tag:yaml.org,2002:str" or not isinstance(key, yaml.ScalarNode):
                    text = key.value if isinstance(key, yaml.ScalarNode) else "a key"
                    self._wrong(
                        f"{text} is not a text key: YAML reads it as {key.tag.rpartition(':')[2]}",
                        line,
                        f'quote it: "{text}"',
                    )
                    continue
                if key.value in first:
                    hint = f"it was first given in line {first[key.value]}; keep one"
                    self._wrong(f"the key {key.value} stands here twice", line, hint)
                    continue
                first[key.value] = line
                self._lines[(*path, key.value)] = line
                self.visit(value, (*path, key.value), within)

    def _wrong(self, what: str, line: int, hint: str) -> None:
        self._problems.append(ConfigError(what, where=Location(self._file, line), hint=hint))

    def locate(self, path: KeyPath) -> Location:
        """The line of a value, or of the nearest part around it that stands in the file."""
        while path and path not in self._lines:
            path = path[:-1]
        return Location(self._file, self._lines.get(path))
