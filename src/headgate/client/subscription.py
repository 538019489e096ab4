"""Following a table through the service: its changes as they come."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from headgate.client.connections import Response, ServiceUnreachable, error_of


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedChanges:
    """Changes of one job, or a piece of them."""

    job: int
    rows: pa.Table
    """The table's columns, and `__weight`: how many of the row came, or (negative) went."""
    is_snapshot: bool
    """Whether the rows are all that the table has at the job."""
    position: str | None
    """With the job's last piece: where to go on, as `as_of` of another subscription."""
    data_timestamp: datetime | None
    """What the sources had acknowledged before this instant is in the job."""


class TableSubscription:
    """Iterate over it, and close it; when the connection breaks, go on from `position`."""

    def __init__(self, response: Response, as_of: int | str | None) -> None:
        self._response = response
        self._events = self._read()
        self.position: str | None = None if as_of is None else str(as_of)
        """Of the last job that was given whole."""
        _, told = next(self._events)
        self.table: str = told["table"]
        self.columns: list[dict[str, str]] = told["columns"]
        """Names and types, as Spark SQL writes them; the last one is the weight."""
        self.key: list[str] | None = told["key"]

    def __iter__(self) -> Iterator[ReceivedChanges]:
        for kind, told in self._events:
            if kind == "problem":
                self.close()
                raise error_of(told["error"], told["status"])
            if kind == "changes":
                with pa.ipc.open_stream(base64.b64decode(told["arrow"])) as reader:
                    rows = reader.read_all()
                at = told["data_timestamp"]
                position = told["position"] if told["complete"] else None
                self.position = position or self.position
                yield ReceivedChanges(
                    told["job"], rows, told["snapshot"], position, None if at is None else datetime.fromisoformat(at)
                )
        raise self._broken()

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events; an `id` is their position."""
        fields: dict[str, str] = {}
        with suppress(ServiceUnreachable):
            for line in self._response.lines():
                name, _, value = line.partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
                elif "data" in fields:
                    yield fields.get("event", "message"), {**json.loads(fields["data"]), "position": fields.get("id")}
                    fields = {}
                else:
                    fields = {}
        raise self._broken()

    def _broken(self) -> ServiceUnreachable:
        self.close()
        again = "subscribe again" if self.position is None else f"subscribe again as of {self.position}"
        return ServiceUnreachable("the subscription broke off: the service went away", hint=again)

    def close(self) -> None:
        """Ends it; the service lets go of what it kept."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
