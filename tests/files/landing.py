"""A folder with files, and a source over it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from headgate.capture.files.method import here
from headgate.capture.files.source import FilesSource
from headgate.capture.locallog import LocalLog
from headgate.capture.source import Sample
from headgate.clock import SystemClock
from headgate.config.files import FilesSourceSettings
from headgate.runtime.sources.sources import declared_columns
from tests.postgres.replaying import Row, events_of, replayed

WINDOW = timedelta(seconds=120)
COLUMNS = {"id": "bigint", "name": "string", "amount": "bigint"}


class Landing:
    """One table `orders`, unless others are named."""

    def __init__(self, home: Path, tables: dict[str, Any] | None = None, beyond: int = 1 << 30, **table: Any) -> None:
        """Tables with ranges whose first files have more than `beyond` bytes are loaded range by range."""
        self.home = home
        self.beyond = beyond
        self.folder = home / "in"
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = {"path": str(self.folder), "format": "csv", **table}
        self.settings = {"type": "files", "settle": "0s", "tables": tables or {"orders": wanted}}
        self.source: FilesSource
        self.open()

    def open(self, **changed: Any) -> None:
        tables = {name: {**table, **changed} for name, table in self.settings["tables"].items()}  # type: ignore[attr-defined]
        settings = FilesSourceSettings.model_validate({**self.settings, "tables": tables})
        log = LocalLog(self.home / "log")
        try:
            columns = declared_columns("landing", settings)
            source = FilesSource("landing", settings, columns, log, SystemClock(), here, beyond=self.beyond)
        except BaseException:
            log.close()
            raise
        self.source = source

    def reopen(self, **changed: Any) -> None:
        self.source.close()
        self.open(**changed)

    def put(self, name: str, *rows: str, header: str | None = "id,name,amount", at: float | None = None) -> Path:
        """A CSV file, renamed into place."""
        lines = rows if header is None else (header, *rows)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        if at is not None:
            os.utime(fresh, (at, at))
        fresh.rename(path)
        return path

    def catch_up(self) -> Sample:
        sample = self.source.sample()
        assert self.source.capture(sample, WINDOW)
        return sample

    def rows(self, table: str = "orders", key: str = "id") -> dict[Any, Row]:
        """What a table with a key holds after everything that is captured."""
        self.catch_up()
        return {key[0]: row for key, row in replayed(self.source.log, {table: (key,)})[table].items()}

    def amounts(self) -> dict[Any, Any]:
        return {key: row["amount"] for key, row in self.rows().items()}

    def events(self, table: str) -> list[Row]:
        return events_of(self.source.log, table)
