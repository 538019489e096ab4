"""The pages of the documentation, and what stands in them: fenced blocks, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]))

_FENCE = re.compile(r"^```(.*)$")
_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^#+ (.+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, a further word that says whose it is, and the line of its first line."""

    page: Path
    line: int
    language: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Prose:
    """A line outside of blocks."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def parts(page: Path) -> tuple[Block | Prose, ...]:
    """A page from its beginning to its end."""
    found: list[Block | Prose] = []
    fence, first, held = "", 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        mark = _FENCE.match(line.strip())
        if first and mark is not None:
            language, _, kind = fence.partition(" ")
            found.append(Block(page, first, language, kind, "\n".join(held) + "\n"))
            first, held = 0, []
        elif mark is not None:
            fence, first = mark[1], number + 1
        elif first:
            held.append(line)
        else:
            found.append(Prose(page, number, line))
    assert not first, f"{page}: the block of line {first} does not end"
    return tuple(found)


def blocks(*languages: str, pages: tuple[Path, ...] = PAGES) -> list[Block]:
    """The blocks in these languages, or all blocks."""
    found = [part for page in pages for part in parts(page) if isinstance(part, Block)]
    return [block for block in found if not languages or block.language in languages]


def links(page: Path) -> Iterator[tuple[Prose, str]]:
    """Links and images, each with where it stands."""
    for part in parts(page):
        if isinstance(part, Prose):
            yield from ((part, target) for target in _LINK.findall(part.text))


def inline_code(page: Path) -> Iterator[tuple[Prose, str]]:
    """Texts between backquotes."""
    for part in parts(page):
        if isinstance(part, Prose):
            yield from ((part, text) for text in _INLINE.findall(part.text))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page ends with."""
    titles = (_HEADING.match(part.text) for part in parts(page) if isinstance(part, Prose))
    return {_anchor(title[1]) for title in titles if title is not None}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
