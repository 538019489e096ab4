"""A process that is killed while it takes files takes each of them exactly once in the end, whatever the moment.

One process forks a child for every step; the child opens the source, takes files and kills itself there. The next one goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TAKER = """
import json, os, signal, sys
from pathlib import Path

from headgate.capture import locallog, writing
from headgate.capture.files import method, taken
from tests.files.landing import COLUMNS, Landing

home, large = Path(sys.argv[1]), sys.argv[2] == "large"
if large:
    method.SMALL_BYTES = 0
STEPS = {
    "before a file is read": (method, "read_part", "before"),
    "after a file is read": (method, "read_part", "after"),
    "before the list of files is written": (taken.TakenFiles, "save", "before"),
    "after the list of files is written": (taken.TakenFiles, "save", "after"),
    "before a transaction is appended": (writing.TransactionWriter, "commit", "before"),
    "after a transaction is appended": (writing.TransactionWriter, "commit", "after"),
    "before the log is on the disk": (locallog.LocalLog, "sync", "before"),
    "after the log is on the disk": (locallog.LocalLog, "sync", "after"),
}


def end():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(owner, name, when, count):
    step = getattr(owner, name)
    calls = []

    def wrapped(*args, **kwargs):
        calls.append(1)
        mine = len(calls)
        if mine == count and when == "before":
            end()
        found = step(*args, **kwargs)
        if mine == count:
            end()
        return found

    setattr(owner, name, wrapped)


def forked(body):
    child = os.fork()
    if child == 0:
        try:
            body()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def take(step, count, turn):
    landing = Landing(home, columns=COLUMNS)
    if step is not None:
        kill_at(*STEPS[step], count)
    landing.catch_up()
    events = {"ids": [row["id"] for row in landing.events("orders")], "files": len(landing.events("files"))}
    (home / "found.json").write_text(json.dumps(events))
    landing.source.close()
    os._exit(0)


folder = home / "in"
folder.mkdir()
number, killed = 0, []
for step in STEPS:
    for count in (1,) if large else (1, 2):
        for _ in range(3):
            number += 1
            (folder / f".{number}").write_text(f"id,name,amount\\n{number},x,1\\n{number},y,1\\n")
            (folder / f".{number}").rename(folder / f"{number}.csv")
        ended = forked(lambda: take(step, count, number))
        killed.append([step, count, ended])
        if number % 2:
            (folder / f"{number}.csv").rename(folder / f"{number}-renamed.csv")
assert forked(lambda: take(None, 0, number)) == 0
print(json.dumps({"number": number, "killed": killed, **json.loads((home / "found.json").read_text())}))
"""


def taken_by_killed_processes(home: Path, size: str) -> dict[str, object]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    done = subprocess.run(
        [sys.executable, "-c", TAKER, str(home), size], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def check(found: dict[str, object]) -> None:
    number = found["number"]
    assert isinstance(number, int)
    assert sorted(found["ids"]) == sorted([*range(1, number + 1)] * 2), "every row of every file, once"  # type: ignore[call-overload]
    assert found["files"] == number
    killed = found["killed"]
    assert isinstance(killed, list)
    # Where a step happens once for all files, the second call may not come.
    assert {step for step, _, ended in killed if ended == -9} == {step for step, _, _ in killed}


def test_small_files_are_taken_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    check(taken_by_killed_processes(tmp_path, "small"))


def test_large_files_are_taken_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    check(taken_by_killed_processes(tmp_path, "large"))
    left = {path.name for path in (tmp_path / "log" / "files").iterdir()}
    assert left, "their rows are in files of the log"
