"""Stream logs that follow the ownership of a warehouse: each owner writes in a folder of its own, and the ledger names the rest.

See `capture/log_manifest` for what lies where, and why a former owner reaches nobody.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headgate.capture.durable import full_disk_is_named, sync_file, sync_folder
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.locallog import LocalLog
from headgate.capture.log_manifest import FormerSegment, LogManifest, epochs
from headgate.capture.loss import Losses
from headgate.capture.recovery import Expected
from headgate.capture.segments import SUFFIX, SegmentScan, scan_segment
from headgate.capture.streamlog import StreamLog
from headgate.config.settings import ProjectLimits
from headgate.config.streams import StreamSettings
from headgate.warehouse.store import Verify

_LOCAL = StreamSettings()
Record = Callable[[LogManifest], None]
"""Puts a manifest into the ledger, or raises `Fenced`."""


def open_stream(
    home: Path,
    epoch: int,
    manifest: LogManifest | None,
    record: Record,
    limits: ProjectLimits,
    verify: Verify,
    expected: Expected,
    settings: StreamSettings = _LOCAL,
) -> StreamLog:
    """Opens the log of a source as the owner of an epoch; what the ledger expects of it and is missing is a loss.

    `manifest` is what the ledger has of the log, None of a new one. A log of one kind opens as the other as well.
    """
    folder = home / str(epoch)
    with full_disk_is_named(home):
        folder.mkdir(parents=True, exist_ok=True)
        former = [] if manifest is None else _adopt(home, manifest, folder)
        sync_folder(home)
    is_elastic = settings.stream == "elastic"
    opened = partial(ElasticLog, partition_bytes=settings.partition_bytes) if is_elastic else LocalLog
    return opened(
        folder,
        segment_bytes=limits.segment_bytes,
        transaction_bytes=limits.transaction_bytes,
        limit_bytes=limits.stream_bytes,
        unwritten_bytes=limits.unwritten_bytes,
        expected=expected,
        verify=verify,
        shared=home,
        former=former,
        begun=partial(_begin, home, epoch, record),
    )


def _adopt(home: Path, manifest: LogManifest, folder: Path) -> list[SegmentScan]:
    """Copies the small files of the former owner; gives what its segments hold."""
    former = home / str(manifest.epoch)
    # The mark first: a former owner moves it only when the segment has what it tells of.
    _copy(former / "mark", folder)
    segments = [(path, size) for path, size in manifest.segments(home) if path.exists()]
    # Rows that could not be read may be what a noted loss is about.
    suspicious = Losses.read(former).open is not None
    scans = [
        scan_segment(path, bodies=suspicious or number == len(segments), limit=size)
        for number, (path, size) in enumerate(segments, start=1)
    ]
    # Then the rest: segments that the former owner has let go meanwhile are missing, and `trimmed` says so.
    for file in former.iterdir() if former.exists() else ():
        if file.is_file() and file.suffix not in (SUFFIX, ".new") and file.name != "mark":
            _copy(file, folder)
    sync_folder(folder)
    return scans


def _copy(file: Path, folder: Path) -> None:
    if file.exists():
        shutil.copyfile(file, folder / file.name)
        sync_file(folder / file.name)


def _begin(home: Path, epoch: int, record: Record, former: Sequence[FormerSegment]) -> None:
    """The log is its new owner's once the ledger says so; what it does not go on with is removed then."""
    record(LogManifest.of(home, epoch, former))
    used = {path for path, _ in former}
    for other in epochs(home):
        folder = home / str(other)
        if other == epoch:
            continue
        if not any(path.parent == folder for path in used):
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path not in used:
                path.unlink(missing_ok=True)
