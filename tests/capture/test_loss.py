"""A stream log that no longer has what it acknowledged says so, whichever of its files is damaged, and can go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.recovery import Expected
from headgate.capture.segments import list_segments
from headgate.capture.streamlog import StreamLog
from headgate.errors import HistoryLost
from tests.capture.logs import OpenLog
from tests.capture.test_streamlog import START, fill, rows, texts

COUNT = 10
Damage = Callable[[Path], None]


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 0xFF
    file.write_bytes(content)


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


@pytest.fixture(scope="module")
def killed(open_log: OpenLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log as a kill leaves it: ten acknowledged transactions in several segments, one of them with a file; never closed."""
    folder = tmp_path_factory.mktemp("killed")
    log = open_log(folder / "live", segment_bytes=2000, transaction_bytes=5000)
    fill(log, 5)
    log.append(6, START.replace(year=2025), {"t": rows(*["6"] * 500)})
    for position in range(7, COUNT + 1):
        log.append(position, START.replace(year=2025), {"t": rows(str(position))})
    shutil.copytree(folder / "live", folder / "left")
    log.close()
    return folder / "left"


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "log"))


def positions(log: StreamLog, after: int = 0) -> set[int]:
    return {int(text) for text in texts(log, after, log.end)}


DAMAGE: dict[str, tuple[Damage, int]] = {
    "a byte near the end": (lambda folder: flip(list_segments(folder)[-1], -20), 9),
    "the end cut off": (lambda folder: cut(list_segments(folder)[-1], -20), 9),
    "the last segment gone": (lambda folder: list_segments(folder)[-1].unlink(), 9),
    "the last segment emptied": (lambda folder: cut(list_segments(folder)[-1], 0), 9),
    "the beginning of the last segment": (lambda folder: flip(list_segments(folder)[-1], 3), 9),
    "the header of a frame in the first segment": (lambda folder: flip(list_segments(folder)[0], 40), 0),
    "the first segment gone": (lambda folder: list_segments(folder)[0].unlink(), 0),
    "the first segment cut short": (lambda folder: cut(list_segments(folder)[0], -5), 9),
    "a file of a large transaction gone": (lambda folder: next((folder / "files").iterdir()).unlink(), 5),
    "a file of a large transaction cut short": (lambda folder: cut(next((folder / "files").iterdir()), -1), 5),
    "both slots of the mark": (lambda folder: cut(folder / "mark", 30), 10),
    "the mark gone": (lambda folder: (folder / "mark").unlink(), 10),
    "everything gone": (lambda folder: shutil.rmtree(folder), 0),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_missing_is_a_loss_that_nobody_reads_across(open_log: OpenLog, folder: Path, kind: str) -> None:
    damage, latest = DAMAGE[kind]
    damage(folder)
    expected = Expected(0, is_marked=True)
    for _ in range(2):
        # The second time the files are whole again, but the loss is not forgotten.
        log = open_log(folder, segment_bytes=2000, expected=expected)
        assert log.loss is not None
        after = log.loss.after
        assert after <= latest
        assert positions_upto(log, after) == set(range(1, after + 1))
        with pytest.raises(HistoryLost, match="acknowledged transactions are lost"):
            log.read("t", after, log.end + 1)
        log.close()


def positions_upto(log: StreamLog, upto: int) -> set[int]:
    return {int(text) for text in texts(log, 0, upto)}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_log_goes_on_without_what_it_lost(open_log: OpenLog, folder: Path, kind: str) -> None:
    DAMAGE[kind][0](folder)
    log = open_log(folder, segment_bytes=2000, expected=Expected(4, is_marked=True))
    before = log.end
    log.go_on_without_lost()
    assert log.end > before
    log.append(log.end + 1, START.replace(year=2026), {"t": rows("99")})
    found = positions(log)
    assert 99 in found and found <= {*range(1, COUNT + 1), 99}
    log.close()
    for _ in range(2):
        log = open_log(folder, segment_bytes=2000, expected=Expected(log.end, is_marked=True))
        assert log.loss is None
        assert positions(log) == found
        log.close()


def test_frames_behind_a_damaged_one_are_kept(open_log: OpenLog, folder: Path) -> None:
    flip(list_segments(folder)[-1], 60)
    log = open_log(folder)
    assert log.loss is not None and log.loss.upto == COUNT
    log.go_on_without_lost()
    missing = set(range(1, COUNT + 1)) - positions(log)
    assert len(missing) == 1
    log.close()


def test_a_loss_found_while_reading_is_noted_and_settled(open_log: OpenLog, folder: Path) -> None:
    blocks = sorted((folder / "blocks").glob("*"))
    first = blocks[0] if blocks else list_segments(folder)[0]
    flip(first, 500 if blocks else first.stat().st_size - 1)
    log = open_log(folder)
    assert log.loss is None
    with pytest.raises(HistoryLost, match=rf"{first.name}: .*damaged at byte \d+: .*checksum"):
        log.read("t", 0, COUNT)
    log.close()
    log = open_log(folder)
    assert log.loss is not None
    log.go_on_without_lost()
    assert len(positions(log)) == COUNT - 1
    log.close()
    log = open_log(folder)
    assert log.loss is None and len(positions(log)) == COUNT - 1
    log.close()


def test_one_damaged_slot_of_the_mark_costs_nothing(open_log: OpenLog, folder: Path) -> None:
    for place in (12, 4096 + 12):
        copy = Path(shutil.copytree(folder, folder.parent / f"copy{place}"))
        flip(copy / "mark", place)
        log = open_log(copy, expected=Expected(COUNT, is_marked=True))
        assert (log.loss, log.end) == (None, COUNT)
        log.close()


def test_a_log_that_ends_before_what_a_job_holds_has_lost_it(open_log: OpenLog, folder: Path) -> None:
    log = open_log(folder, expected=Expected(12))
    assert log.loss is not None and (log.loss.after, log.loss.upto, log.end) == (10, 12, 12)
    log.close()


def test_a_source_that_still_has_what_was_lost_appends_it_again(open_log: OpenLog, folder: Path) -> None:
    cut(list_segments(folder)[-1], -20)
    log = open_log(folder)
    assert log.loss is not None
    log.forget_after_loss()
    assert log.end == log.loss.after
    for position in range(log.end + 1, COUNT + 1):
        log.append(position, START.replace(year=2025), {"t": rows(str(position))})
    log.settle_loss(found_again=True)
    assert positions(log) == set(range(1, COUNT + 1))
    log.close()
    log = open_log(folder)
    assert log.loss is None and positions(log) == set(range(1, COUNT + 1))
    log.close()


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_no_byte_of_a_log_can_be_flipped_or_cut_in_silence(
    open_log: OpenLog, killed: Path, data: st.DataObject
) -> None:
    folder = killed.parent / "any"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(killed, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".parquet")
    file = data.draw(st.sampled_from(files), "file")
    place = data.draw(st.integers(0, file.stat().st_size - 1), "place")
    data.draw(st.sampled_from([flip, cut]), "damage")(file, place)
    log = open_log(folder, segment_bytes=2000, expected=Expected(0, is_marked=True))
    try:
        assert positions(log) == set(range(1, COUNT + 1))
    except HistoryLost:
        assert log.loss is not None
    finally:
        log.close()
