"""Names in the graph: unique, simple identifiers, so that no expression needs a quote or a qualifier."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

_PIECES = re.compile(
    r"""(?P<string>(?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\r\n]*|/\*.*?\*/)"""
    r"""|(?<![.\w])(?P<word>[A-Za-z_][A-Za-z0-9_]*)""",
    re.DOTALL,
)


def folded(name: str) -> str:
    """The form by which names are compared: Spark ignores case."""
    return name.casefold()


def quoted(name: str) -> str:
    """The name as Spark SQL reads it in any position."""
    return "`" + name.replace("`", "``") + "`"


def words(sql: str) -> set[str]:
    """Every identifier outside strings and comments: at least the columns that the expression uses."""
    return {match.group("word") for match in _PIECES.finditer(sql) if match.group("word")}


def is_mentioned(name: str, text: str) -> bool:
    """Whether the text has the name anywhere, in any case."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def substituted(sql: str, replacements: Mapping[str, str]) -> str:
    """The text with identifiers replaced; strings and comments stay."""

    def replace(match: re.Match[str]) -> str:
        word = match.group("word")
        return match.group(0) if word is None else replacements.get(word, word)

    return _PIECES.sub(replace, sql)


def canonical(sql: str) -> str:
    """A form in which expressions compare equal that differ in case, white space or outer parentheses."""
    pieces = re.split(r"""([rR]?'(?:[^'\\]|\\.)*'|[rR]?"(?:[^"\\]|\\.)*")""", sql, flags=re.DOTALL)
    text = "".join(piece if index % 2 else re.sub(r"\s+", " ", piece).casefold() for index, piece in enumerate(pieces))
    text = re.sub(r" ?([(),=<>+*/%-]) ?", r"\1", text).strip()
    while text.startswith("(") and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


def output_name(text: str) -> str:
    """A column name made of an expression without an alias: `sum(l.qty)` becomes sum_l_qty."""
    return re.sub(r"_+", "_", re.sub(r"\W", "_", text.replace("*", "star"))).strip("_").lower() or "column"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are spelled most like this one, if any are."""
    spelled = {folded(item): item for item in known}
    return [spelled[item] for item in difflib.get_close_matches(folded(name), list(spelled), n=2, cutoff=0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known names."""
    names = sorted({folded(item): item for item in known}.values())
    if near := nearest(name, names):
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else None


class NameAllocator:
    """Hands out names that no other column of the same view has."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last number of each name that was asked for more than once."""

    def fresh(self, *parts: str) -> str:
        base = "__".join(re.sub(r"[^A-Za-z0-9_]", "_", part) for part in parts if part)
        if not base or base[0].isdigit() or base.startswith("_"):
            base = f"c{base}"
        number = self._numbers.get(base, 1)
        name = base if "__" in base else f"{base}_1"
        while folded(name) in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(folded(name))
        return name
