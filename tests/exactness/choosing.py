"""Choices that hypothesis makes, in the words of a generator; every choice shrinks towards the first and the fewest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")


class Chooser:
    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def maybe(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the options, in their order, none twice."""
        count = self.number(min(least, len(options)), min(most, len(options)))
        rest = list(range(len(options)))
        chosen = [rest.pop(self.number(0, len(rest) - 1)) for _ in range(count)]
        return [options[index] for index in sorted(chosen)]

    def text(self) -> str:
        """Any text that Spark can hold."""
        return self._draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
