"""The lock file is the present owner's while it lives, whoever looks and whoever took over."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.errors import EnvironmentProblem, WarehouseBusy
from headgate.warehouse.lock import LOCK, OwnerLock, living_owner
from headgate.warehouse.storage import Folder

AT = datetime(2024, 5, 1, tzinfo=UTC)
NOBODY = 65534


def take(home: Path, owner: str = "host-a process 42", *, takeover: bool = False) -> OwnerLock:
    return OwnerLock.take(Folder.at(home), owner, AT, takeover=takeover)


def test_a_living_owner_is_named_with_its_user(tmp_path: Path) -> None:
    assert living_owner(tmp_path) is None
    lock = take(tmp_path)
    for _ in range(2):
        assert str(living_owner(tmp_path)).startswith("host-a process 42 since 2024-05-01T00:00:00+00:00, user ")
    lock.release()
    assert living_owner(tmp_path) is None


def test_after_a_takeover_the_lock_is_the_successors_alone(tmp_path: Path) -> None:
    former = take(tmp_path, "former")
    successor = take(tmp_path, "successor", takeover=True)
    for _ in range(2):
        assert str(living_owner(tmp_path)).startswith("successor since")
        with pytest.raises(WarehouseBusy, match="in use by successor"):
            take(tmp_path)
        former.release()
    successor.release()
    assert living_owner(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    take(tmp_path).release()


def test_a_lock_file_that_was_deleted_is_nobodys(tmp_path: Path) -> None:
    former = take(tmp_path, "former")
    (tmp_path / LOCK).unlink()
    owner = take(tmp_path, "owner")
    former.release()
    with pytest.raises(WarehouseBusy, match="in use by owner"):
        take(tmp_path)
    owner.release()


def test_of_many_who_want_it_at_once_one_gets_it_and_lookers_keep_nobody_out(tmp_path: Path) -> None:
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            living_owner(tmp_path)

    def want(number: int) -> OwnerLock | None:
        try:
            return take(tmp_path, str(number))
        except WarehouseBusy:
            return None

    with ThreadPoolExecutor(8) as threads:
        looking = threads.submit(look)
        try:
            for _ in range(5):
                (lock,) = [found for found in threads.map(want, range(6)) if found is not None]
                lock.release()
        finally:
            done.set()
        looking.result()


@pytest.fixture
def everyones() -> Iterator[Path]:
    """A folder that every user can enter and read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_told_whose_the_warehouse_is(everyones: Path) -> None:
    home = everyones
    lock = take(home)

    def asked(what: str) -> str:
        script = (
            "import os, sys; from datetime import datetime, UTC; from pathlib import Path;"
            "from headgate.warehouse.lock import OwnerLock, living_owner; from headgate.warehouse.storage import Folder;"
            f"os.setgid({NOBODY}); os.setuid({NOBODY}); home = Path({str(home)!r});"
            f"print({what})"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        return found.stdout + found.stderr

    taken = "OwnerLock.take(Folder.at(home), 'other', datetime.now(UTC), takeover=False)"
    for what in (taken, "living_owner(home)"):
        assert "belongs to root (run this as that user: sudo -u root headgate" in asked(what)
    # A storage that an older headgate made lets others read the lock.
    (home / LOCK).chmod(0o644)
    assert "host-a process 42 since" in asked("living_owner(home)")
    assert "belongs to root" in asked(taken)
    lock.release()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot write the lock file"):
        take(tmp_path / "missing")
