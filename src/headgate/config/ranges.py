"""What a project file may say about the key ranges of a table."""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise

from pydantic import Field, field_validator, model_validator

from headgate.config.fields import Settings, refuse


class RangeSettings(Settings):
    """How a table is cut into key ranges, of which a query brings only those up to date that it reads."""

    column: str
    """A column of the key: whole numbers, dates, timestamps or text."""
    bounds: tuple[int | date | datetime | str, ...] = ()
    """Where ranges begin, in order."""
    count: int | None = Field(default=None, ge=1, le=1_000)
    """So many ranges of about equally many rows, in place of bounds: they are chosen once the table has rows."""
    family: str | None = None
    """Tables of a source with the same family share bounds and are brought forward range by range together; by default those
    whose range columns have the same name."""

    @field_validator("bounds")
    @classmethod
    def _in_order(cls, bounds: tuple[object, ...]) -> tuple[object, ...]:
        if len({type(bound) for bound in bounds}) > 1:
            raise refuse("the bounds are of different types", "give values of the range column's type")
        if any(not before < after for before, after in pairwise(bounds)):  # type: ignore[operator]
            raise refuse("the bounds are not in order", "give each bound once, in ascending order")
        return bounds

    @model_validator(mode="after")
    def _is_one_of_two(self) -> RangeSettings:
        if self.bounds and self.count is not None:
            raise refuse("a table has bounds of ranges or a count, not both", "leave out one of them")
        return self
