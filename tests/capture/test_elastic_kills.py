"""Writers and owner of an elastic queue are killed at every step: what was acknowledged is there, and nothing is half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.capture.block_writer import BlockWriter
from headgate.capture.elastic.log import ElasticLog
from headgate.capture.parts import OpenParts
from tests.capture.test_blocks import blocks_of, rows

START = datetime(2024, 1, 1, tzinfo=UTC)
STEPS = ("write", "pwrite", "fsync", "ftruncate", "unlink", "replace", "rename", "open")


class Killed:
    """Keeps what is on the disk before each call to the system that changes it: what a kill at that moment leaves."""

    def __init__(self, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acknowledged: list[tuple[int, ...]] = []
        """The ids of each committed transaction whose writer was told so."""
        self.left: list[tuple[Path, int, str]] = []
        """A copy of the folder, how many transactions were acknowledged then, and the step."""
        self._folder, self._place = folder, place
        self._is_busy = False
        for name in STEPS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if not self._is_busy:
                with self._busy():
                    copy = self._place / str(len(self.left))
                    shutil.copytree(self._folder, copy)
                    self.left.append((copy, len(self.acknowledged), name))
            return call(*arguments, **options)

        return watched

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False


def transactions(log: ElasticLog) -> dict[int, tuple[int, ...]]:
    """By position the ids of t and u, read and compared: u has what t has, negated."""
    found: dict[int, dict[str, list[int]]] = {}
    for table in ("t", "u"):
        events = log.read(table, log.trimmed, log.end).table
        if events is not None:
            for position, number in zip(events["__position"].to_pylist(), events["id"].to_pylist(), strict=True):
                found.setdefault(position, {"t": [], "u": []})[table].append(number)
    for tables in found.values():
        assert tables["u"] == [-number for number in tables["t"]]
    return {position: tuple(tables["t"]) for position, tables in found.items()}


def test_a_kill_at_any_step_leaves_whole_transactions_and_all_that_were_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "queue"
    log = ElasticLog(folder, segment_bytes=1500, partition_bytes=4000)
    open_parts = OpenParts(log)
    writers = [BlockWriter(log.open_segment, segment_bytes=2500, memory_bytes=100) for _ in range(2)]
    with monkeypatch.context() as patched:
        killed = Killed(folder, tmp_path / "left", patched)
        for number in range(1, 6):
            ids = (number, number + 100)
            parts = [
                blocks_of(writer, t=rows(each), u=rows(-each, first=1))
                for writer, each in zip(writers, ids, strict=True)
            ]
            at = START + timedelta(seconds=number)
            name = open_parts.begin(log)
            for part, puts in enumerate(parts):
                open_parts.offer(name, part, puts)
            log.append_blocks(number, at, open_parts.whole(name, 2, log), synced=number % 2 == 1)
            open_parts.end(name)
            log.sync()
            killed.acknowledged.append(ids)
            if number == 2:
                log.split(log.partitions.found[0].id)
            if number == 4:
                log.trim(2)
        for writer in writers:
            writer.close()
        log.close()
    assert {step for _, _, step in killed.left} >= {"write", "pwrite", "fsync", "open"}
    assert len(killed.left) > 60
    expected = dict(enumerate(killed.acknowledged, start=1))
    for place, acknowledged, step in killed.left:
        again = ElasticLog(place)
        assert again.loss is None, (place.name, step)
        assert acknowledged <= again.end <= acknowledged + 1, (place.name, step)
        assert transactions(again) == {p: ids for p, ids in expected.items() if again.trimmed < p <= again.end}
        # It goes on, and what nobody committed is gone.
        again.append(again.end + 1, START + timedelta(days=1), {"t": rows(7), "u": rows(-7)})
        named = {block.segment for entry in again._index for block in entry.blocks}
        assert {path.name for path in (place / "blocks").iterdir()} == named, (place.name, step)
        assert transactions(again)[again.end] == (7,)
        again.close()
