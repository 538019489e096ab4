"""Stream logs that follow the ownership of a warehouse.

    _headgate/streams/<source>/<epoch>/       the log as the owner of that epoch has it

A process that was paused while another took over still holds its files open, and what it then appends must reach
nobody. So each owner has a folder of its own: finished files are linked into it, the last segment, which a former
owner could still be writing, is copied, and so is the mark. The former owner's folder goes once the new one is complete.

The order makes it safe: the new owner is in the ledger before it copies, and an appended transaction is acknowledged
only when the ledger, asked after the disk had it, still names its owner. So what was acknowledged is in the copy.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from headgate.capture.durable import full_disk_is_named, sync_file, sync_folder
from headgate.capture.events import Committed, Events
from headgate.capture.frames import Header
from headgate.capture.recovery import Expected
from headgate.capture.segments import list_segments
from headgate.capture.streamlog import StreamLog
from headgate.capture.writing import TransactionWriter
from headgate.config.settings import ProjectLimits
from headgate.warehouse.store import Verify, unverified

UNFINISHED = "unfinished"


class OwnedLog(StreamLog):
    """A stream log that acknowledges only while this process owns the warehouse; afterwards it raises `Fenced`."""

    def __init__(self, folder: Path, limits: ProjectLimits, verify: Verify, expected: Expected) -> None:
        self._verify = verify
        super().__init__(
            folder,
            segment_bytes=limits.segment_bytes,
            transaction_bytes=limits.transaction_bytes,
            limit_bytes=limits.stream_bytes,
            unwritten_bytes=limits.unwritten_bytes,
            expected=expected,
        )

    def begin(self, position: int, commit_at: datetime, *, initial: bool = False) -> TransactionWriter:
        self._verify()
        return super().begin(position, commit_at, initial=initial)

    def keep(self, position: int, commit_at: datetime, tables: Mapping[str, pa.Table]) -> Committed:
        self._verify()
        return super().keep(position, commit_at, tables)

    def append_group(
        self,
        transactions: Sequence[tuple[int, datetime]],
        tables: Mapping[str, pa.Table],
        counts: Mapping[str, Sequence[int]],
    ) -> None:
        self._verify()
        super().append_group(transactions, tables, counts)

    def sync(self, upto: int | None = None) -> None:
        with self._as_owner():
            super().sync(upto)
        self._verify()

    def read(self, table: str, after: int, upto: int) -> Events:
        with self._as_owner():
            return super().read(table, after, upto)

    def trim(self, upto: int) -> None:
        with self._as_owner():
            super().trim(upto)

    def close(self) -> None:
        """Closes the files; a former owner may close as well."""
        self._verify = unverified
        super().close()

    def _append(self, make_header: Callable[[int], Header], bodies: Sequence[bytes]) -> Committed:
        with self._as_owner():
            return super()._append(make_header, bodies)

    @contextmanager
    def _as_owner(self) -> Iterator[None]:
        """A former owner's folder is gone: what then fails is that, not the disk."""
        try:
            yield
        except OSError:
            self._verify()
            raise


def open_stream(
    streams: Path, source: str, epoch: int, limits: ProjectLimits, verify: Verify, expected: Expected
) -> OwnedLog:
    """Opens the log of a source as the owner of an epoch; what the ledger expects of it and is missing is a loss."""
    home = streams / source
    with full_disk_is_named(home):
        home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(home / UNFINISHED, ignore_errors=True)
        before = _epochs(home)
        if before:
            _adopt(before[-1], home / UNFINISHED)
            (home / UNFINISHED).rename(home / str(epoch))
            sync_folder(home)
    log = OwnedLog(home / str(epoch), limits, verify, expected)
    for old in before:
        shutil.rmtree(old, ignore_errors=True)
    return log


def _epochs(home: Path) -> list[Path]:
    return sorted((path for path in home.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def _adopt(former: Path, folder: Path) -> None:
    folder.mkdir()
    # The mark first: a former owner moves it only when the segment has what it tells of.
    written_in_place = [former / "mark", *list_segments(former)[-1:]]
    for file in written_in_place:
        if file.exists():
            shutil.copyfile(file, folder / file.name)
            sync_file(folder / file.name)
    for place in (former, former / "files"):
        target = folder / place.relative_to(former)
        target.mkdir(exist_ok=True)
        if not place.exists():
            continue
        for file in place.iterdir():
            if file.is_file() and file.suffix != ".new" and file not in written_in_place:
                _link(file, target / file.name)
        sync_folder(target)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        shutil.copyfile(file, target)
        sync_file(target)
