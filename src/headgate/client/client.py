"""A client of the service, which needs no Spark: rows come as Arrow, errors as those that the warehouse raised.

with headgate.client.connect() as shop, shop.sql("SELECT * FROM revenue", max_staleness="10m") as reply:
    print(reply.to_arrow(), reply.receipt)
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

import pyarrow as pa

from headgate.client.connections import DEFAULT_URL, Connections, Response
from headgate.client.subscription import TableSubscription
from headgate.notebook import answer_html, to_pandas, to_polars
from headgate.text import require_text

if TYPE_CHECKING:
    import pandas
    import polars

Duration = timedelta | str | float
"""A duration, its text ('10m'), or a number of seconds."""

DEFAULT_TIMEOUT = 360.0
"""Seconds; a little more than the service itself allows a query by default."""
_SILENCE = 60.0
"""Seconds; the service says something at least every 15."""


class _Closing(ABC):
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(url: str = DEFAULT_URL, token: str | None = None, timeout: float | None = DEFAULT_TIMEOUT) -> Client:
    """A client of the service at an address, with the token that it may ask for; nothing is sent before the first request.

    A query or look at the service that takes longer than the timeout, in seconds, fails.
    """
    return Client(url, token, timeout)


class Client(_Closing):
    """May be used from several threads; connections are kept between requests."""

    def __init__(self, url: str, token: str | None, timeout: float | None) -> None:
        self.url = url.rstrip("/")
        self._connections = Connections(self.url, token)
        self._timeout = timeout

    def sql(
        self,
        text: str,
        *,
        max_staleness: Duration | None = None,
        deadline: Duration | None = None,
        when_stale: str | None = None,
        job: int | None = None,
        session: str | None = None,
        limit: int | None = None,
    ) -> Reply:
        """Answers one SELECT, at most as stale as it says, from one snapshot of all its tables.

        Queries of a named session share what `SET` says and never go back in time. `limit` ends the answer after so many
        rows. Close the reply, or read all of it.
        """
        body = {
            "sql": text,
            "max_staleness": max_staleness,
            "deadline": deadline,
            "when_stale": when_stale,
            "job": job,
            "session": session,
            "limit": limit,
            "format": "arrow",
        }
        return Reply(self._connections.ask("POST", "/v1/query", body, self._timeout, may_repeat=True))

    def subscribe(
        self, table: str, as_of: int | str | None = None, *, max_staleness: Duration | None = None
    ) -> TableSubscription:
        """Follows a table: its rows at one job, then the weighted changes of each later job.

        `as_of` is a job whose rows you have, or the position that an earlier subscription gave: then only what came after it
        comes. The table is kept as fresh as the bound says, by default the project's.
        """
        age = f"{max_staleness.total_seconds()}s" if isinstance(max_staleness, timedelta) else max_staleness
        asked = {"format": "arrow", "as_of": as_of, "max_staleness": f"{age}s" if isinstance(age, int | float) else age}
        said = urlencode({name: value for name, value in asked.items() if value is not None})
        path = f"/v1/subscribe/{quote(require_text(table, 'the name'), safe='')}?{said}"
        return TableSubscription(self._connections.ask("GET", path, None, _SILENCE, may_repeat=False), as_of)

    def status(self) -> dict[str, Any]:
        """The warehouse now: jobs, tables, sources, and the queries that run."""
        return self._get("/v1/status")

    def tables(self) -> list[dict[str, Any]]:
        """Every table: its columns, key, what it reads, and how fresh it is."""
        found: list[dict[str, Any]] = self._get("/v1/tables")["tables"]
        return found

    def history(self, limit: int = 100) -> dict[str, Any]:
        """The latest jobs, and the latest queries with their receipts; the newest last."""
        return self._get(f"/v1/history?limit={limit}")

    def explain(self, flow: str) -> dict[str, Any]:
        """The flow's graph and what of it is incremental; `text` has all of it to be read."""
        return self._get(f"/v1/explain/{quote(require_text(flow, 'the name'), safe='')}")

    def lineage(self, table: str) -> dict[str, Any]:
        """Which columns of which tables each of the table's columns is made of."""
        return self._get(f"/v1/lineage/{quote(require_text(table, 'the name'), safe='')}")

    def refresh(self, *, table: str | None = None, full: bool = False) -> int:
        """Brings every table up to date and gives the newest job.

        `full` reads all tables of all sources whole again; `table` reads that source table, or builds that flow again
        from its inputs.
        """
        job: int = self._do("POST", "/v1/refresh", {"table": table, "full": full})["job"]
        return job

    def resume(self) -> dict[str, Any]:
        """Takes the flow files as they are now and tries again what had failed."""
        return self._do("POST", "/v1/resume", {})

    def apply(self, *, dry_run: bool = False, diff: bool = False, expected: str | None = None) -> dict[str, Any]:
        """Takes the project's files as they are now, or with `dry_run` only tells what that would change."""
        return self._do("POST", "/v1/apply", {"dry_run": dry_run, "diff": diff, "expected": expected})

    def advise(self, flow: str | None = None, *, space: float | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Stores those results of one flow or all that take least time; with `dry_run` only tells which these are."""
        if not dry_run:
            return self._do("POST", "/v1/advise", {"flow": flow, "space": space})
        chosen = "" if flow is None else f"?flow={quote(require_text(flow, 'the name'), safe='')}"
        return self._get(f"/v1/advise{chosen}")

    def serving(self) -> dict[str, Any]:
        """What the platforms beside Spark have: job, trouble, and each placed table."""
        return self._get("/v1/serving")

    def repair(self, table: str | None = None) -> dict[str, Any]:
        """Copies a placed table to its platform again, or all that others have changed; gives what `serving` gives."""
        return self._do("POST", "/v1/serving", {"table": table})

    def settings(self) -> dict[str, Any]:
        """What can be changed while the warehouse runs, and who changed what."""
        return self._get("/v1/settings")

    def change(self, name: str, value: object, who: str | None = None) -> dict[str, Any]:
        """Changes a setting; gives what `settings` gives."""
        return self._do("PATCH", "/v1/settings", {"name": name, "value": value, "who": who})

    def reset(self, name: str, who: str | None = None) -> dict[str, Any]:
        """Takes a setting back to what the project file says; gives what `settings` gives."""
        return self._do("PATCH", "/v1/settings", {"name": name, "reset": True, "who": who})

    def scale(self) -> dict[str, Any]:
        """The size of every part, why it has it, and what changed lately."""
        return self._get("/v1/scale")

    def fix_size(self, part: str, size: int | None) -> dict[str, Any]:
        """Sets the size of a part by hand; None gives it back to its policy. Gives what `scale` gives."""
        return self._do("POST", "/v1/scale", {"part": part, "size": size})

    def loads(self) -> dict[str, Any]:
        """The sources whose tables do not all have their first rows, and how far those are."""
        return self._get("/v1/load")

    def load_first(self, table: str) -> dict[str, Any]:
        """Has a source table, or rows of it (`shop.orders WHERE id < 1000`), loaded before others; gives what `loads` gives."""
        return self._do("POST", "/v1/load", {"first": table})

    def ranges(self) -> dict[str, Any]:
        """How every table is cut into key ranges, and where they stand."""
        return self._get("/v1/ranges")

    def change_ranges(self, table: str, **change: object) -> dict[str, Any]:
        """Cuts the ranges of a table's family: `split` at a value, `merge` of a range with the next, or all `bounds`."""
        return self._do("PATCH", "/v1/ranges", {"table": table, **change})

    def split_partition(self, source: str, partition: int) -> dict[str, Any]:
        """Cuts a partition of a source's elastic queue in two; gives the queue's partitions."""
        return self._do("POST", "/v1/queue", {"source": source, "partition": partition})

    def merge_partitions(self, source: str, partition: int, other: int) -> dict[str, Any]:
        """Joins two neighbouring partitions of a source's elastic queue; gives the queue's partitions."""
        return self._do("POST", "/v1/queue", {"source": source, "partition": partition, "other": other})

    def backup(self, folder: str) -> dict[str, Any]:
        """Copies the warehouse into an empty folder of the service's machine; gives what the copy holds."""
        return self._do("POST", "/v1/backup", {"folder": folder})

    def producers(self) -> dict[str, Any]:
        """The socket at which producers on the service's machine connect, and the port for others; see `headgate.connect`."""
        return self._get("/v1/producers")

    def close(self) -> None:
        """Closes the connections that no reply uses."""
        self._connections.close()

    def _get(self, path: str) -> dict[str, Any]:
        return self._connections.ask("GET", path, None, self._timeout, may_repeat=True).json()

    def _do(self, method: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        # It takes as long as it takes.
        return self._connections.ask(method, path, body, None, may_repeat=False).json()


class Reply(_Closing):
    """The rows of a query, read while they arrive, and the receipt that says how fresh they are."""

    def __init__(self, response: Response) -> None:
        self._response = response
        said = response.header("headgate-receipt")
        self.receipt: dict[str, Any] | None = None if said is None else json.loads(said)
        """What was promised and achieved; None for the rows of a job that was named."""
        with response.reading():
            self._reader = pa.ipc.open_stream(response.content())
        self._table: pa.Table | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; once."""
        with self._response.reading():
            yield from self._reader
        self._response.finish()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            self._table = pa.Table.from_batches(self.batches(), self.schema)
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a DataFrame of pandas."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """All rows as a DataFrame of polars, if that is installed."""
        return to_polars(self.to_arrow())

    def _repr_html_(self) -> str:
        """The first rows as a table, for a notebook, and what the receipt says; all rows are read for that."""
        return answer_html(self.to_arrow(), True, self.receipt)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts; once, unless they are in `to_arrow` already."""
        for batch in self.batches() if self._table is None else self._table.to_batches():
            yield from batch.to_pylist()

    def close(self) -> None:
        """Lets the answer go; what was not read is not sent any more."""
        self._response.close()
