"""Owners of a stream log follow one another: the ledger names what counts, and a former owner reaches nobody."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.log_manifest import LogManifest, epochs
from headgate.capture.recovery import UNKNOWN
from headgate.capture.segments import list_segments
from headgate.capture.streamlog import StreamLog
from headgate.config.settings import ProjectLimits
from headgate.config.streams import StreamSettings
from headgate.errors import Fenced, HistoryLost
from headgate.runtime.sources.streams import open_stream
from tests.capture.test_streamlog import START, fill, rows, texts

KINDS = ("local", "elastic")


class Owners:
    """One log and the part of the ledger that tells of it."""

    def __init__(self, home: Path, kind: str = "local") -> None:
        self.home = home
        self.kind = kind
        self.epoch = 0
        self.manifest: LogManifest | None = None

    def open(self, *, dies_before_the_ledger: bool = False) -> StreamLog:
        self.epoch += 1
        mine = self.epoch

        def verify() -> None:
            if mine != self.epoch:
                raise Fenced("another process has taken over")

        def record(manifest: LogManifest) -> None:
            if dies_before_the_ledger:
                raise KeyboardInterrupt
            verify()
            self.manifest = LogManifest.from_body(manifest.body("shop"))

        limits = ProjectLimits(segment_bytes=2_000, transaction_bytes=5_000)
        settings = StreamSettings(stream="elastic" if self.kind == "elastic" else "local")
        return open_stream(self.home, mine, self.manifest, record, limits, verify, UNKNOWN, settings)

    def close_like_a_kill(self, log: StreamLog) -> None:
        """What a killed process leaves is what is there; its files are closed by the system."""
        self.epoch += 1
        with suppress(Fenced):
            log.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_successor_goes_on_with_the_segments_where_they_are(tmp_path: Path, kind: str) -> None:
    owners = Owners(tmp_path, kind)
    first = owners.open()
    fill(first, 20)
    first.append(21, START.replace(year=2025), {"t": rows(*["large"] * 500)})
    segments = list_segments(first.folder)
    before = [(path.stat().st_ino, path.read_bytes()) for path in segments]
    second = owners.open()
    assert texts(second) == texts(first) and second.end == second.durable == 21
    assert [(path.stat().st_ino, path.read_bytes()) for path in segments] == before
    assert not list_segments(second.folder) and {path.name for path in first.folder.iterdir()} == {
        path.name for path in segments
    }
    second.append(22, START.replace(year=2025), {"t": rows("second")})
    third = owners.open()
    assert texts(third, 21) == ["second"] and len(texts(third)) == 561 and third.end == 22
    third.trim(21)
    # What is consumed goes, whoever wrote it.
    assert not any(path.exists() for path in segments) and texts(third, 21) == ["second"]
    assert not list(third.files_folder.iterdir())
    third.close()
    fourth = owners.open()
    assert epochs(tmp_path) == [2, 4] and texts(fourth, 21) == ["second"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_former_owner_appends_reaches_nobody(tmp_path: Path, kind: str) -> None:
    owners = Owners(tmp_path, kind)
    former = owners.open()
    fill(former, 5)
    paused = former.begin(6, START.replace(year=2025))
    paused.write("t", rows("never"))
    successor = owners.open()
    with suppress(Fenced):
        paused.commit()
    with pytest.raises(Fenced):
        former.sync()
    with pytest.raises(Fenced):
        former.trim(5)
    assert len(texts(successor)) == 15
    successor.append(6, START.replace(year=2025), {"t": rows("mine")})
    with suppress(Fenced):
        former.append(7, START.replace(year=2025), {"t": rows(*["never"] * 500)})
    again = owners.open()
    assert texts(again, 5) == ["mine"] and len(texts(again)) == 16


@pytest.mark.parametrize("kind", KINDS)
def test_an_opening_that_dies_before_the_ledger_has_it_changes_nothing(tmp_path: Path, kind: str) -> None:
    owners = Owners(tmp_path, kind)
    log = owners.open()
    fill(log, 10)
    log.append(11, START.replace(year=2025), {"t": rows(*["large"] * 500)})
    held = texts(log)
    with pytest.raises(KeyboardInterrupt):
        owners.open(dies_before_the_ledger=True)
    again = owners.open()
    assert texts(again) == held
    assert epochs(tmp_path) == [1, 3], "what the opening left is removed"


def test_damage_in_a_former_owners_segment_is_a_loss_and_what_is_left_of_it_a_new_version(tmp_path: Path) -> None:
    owners = Owners(tmp_path)
    first = owners.open()
    fill(first, 4, size=1)
    first.close()
    segment = list_segments(first.folder)[-1]
    content = bytearray(segment.read_bytes())
    content[-20] ^= 0xFF
    segment.write_bytes(content)
    second = owners.open()
    assert second.loss is not None and second.loss.after == 3 and str(segment) in str(second.loss.error())
    second.go_on_without_lost()
    assert segment.read_bytes() == content, "another owner may count on it"
    second.append(second.end + 1, START.replace(year=2025), {"t": rows("after")})
    second.close()
    third = owners.open()
    assert third.loss is None and texts(third) == ["1", "2", "3", "after"]
    third.close()


@pytest.mark.parametrize("trims", ["the same owner", "the next"])
@pytest.mark.parametrize("found", ["on opening", "while reading"])
def test_a_log_goes_on_behind_damage_in_the_middle_of_a_former_owners_segments(
    tmp_path: Path, found: str, trims: str
) -> None:
    owners = Owners(tmp_path)
    first = owners.open()
    fill(first, 30, size=1)
    segments = list_segments(first.folder)
    assert len(segments) > 3
    content = bytearray(segments[1].read_bytes())
    # The header of its last frame, or the rows in it.
    content[content.rindex(b"HGF") + 30 if found == "on opening" else -1] ^= 0xFF
    segments[1].write_bytes(content)
    second = owners.open()
    if found == "while reading":
        with pytest.raises(HistoryLost):
            second.read("t", 0, 30)
    assert second.loss is not None
    second.go_on_without_lost()
    kept = texts(second)
    assert len(kept) == 29
    second.append(second.end + 1, START.replace(year=2025), {"t": rows("after")})
    # What is left of the damaged segment is let go: the segment itself must not count again.
    missing = next(number for number in range(1, 31) if str(number) not in kept)
    if trims == "the same owner":
        second.trim(missing - 1)
    second.close()
    third = owners.open()
    assert third.loss is None and texts(third, third.trimmed) == [*kept[third.trimmed :], "after"]
    third.trim(missing - 1)
    third.close()
    fourth = owners.open()
    assert fourth.loss is None and texts(fourth, fourth.trimmed) == [*kept[missing - 1 :], "after"]
    fourth.close()


@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
@settings(max_examples=25, deadline=None)
def test_any_row_of_owners_holds_what_was_acknowledged(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        owners = Owners(Path(folder), kind)
        log = owners.open()
        held: dict[int, str] = {}
        trimmed = 0
        for _ in range(25):
            what = chance.choice(["append", "append", "append", "torn", "trim", "kill", "close", "dies", "paused"])
            if what == "append":
                position = log.end + chance.randint(1, 3)
                held[position] = f"{position}" * chance.choice([1, 5000])
                log.append(position, START + timedelta(seconds=position), {"t": rows(held[position])})
            elif what == "trim" and held:
                trimmed = chance.choice([*held])
                log.trim(trimmed)
                trimmed = max(trimmed, log.trimmed)
            elif what == "torn" and (segments := list_segments(log.folder)):
                owners.close_like_a_kill(log)
                with segments[-1].open("ab") as stream:
                    stream.write(b"HGF2 half a frame")
                log = owners.open()
            elif what in ("kill", "close"):
                log.close() if what == "close" else owners.close_like_a_kill(log)
                log = owners.open()
            elif what == "dies":
                with pytest.raises(KeyboardInterrupt):
                    owners.open(dies_before_the_ledger=True)
                log.close()
                log = owners.open()
            elif what == "paused":
                former, log = log, owners.open()
                with pytest.raises(Fenced):
                    former.append(former.end + 1, START.replace(year=2030), {"t": rows("never")})
                former.close()
            expected = [text for position, text in sorted(held.items()) if position > trimmed]
            assert log.loss is None and sorted(texts(log, trimmed)) == sorted(expected)
        log.close()
