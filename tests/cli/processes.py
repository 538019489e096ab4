"""The command line as a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.soak.soaking import children

Served = tuple[subprocess.Popen[str], str]
"""A service and its address."""


def headgate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "headgate", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def start(project: Path, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """The service of a project, and its address; the process is started as one that shares its files with everybody."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate", "run", "--project", str(project), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=(project / "log").open("w"),
        text=True,
        umask=0o022,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 120)
    line = process.stdout.readline() if ready else ""
    if not line:
        process.kill()
        process.wait()
        raise AssertionError((project / "log").read_text())
    told = json.loads(line)
    assert told["pid"] == process.pid
    return process, told["url"]


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    try:
        return process.wait(60)
    finally:
        process.kill()


def sell(project: Path) -> None:
    done = subprocess.run([sys.executable, str(project / "sell.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def comm(pid: int | str) -> str:
    """The name of a process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def worker_of(process: subprocess.Popen[str]) -> int:
    """The service itself, whose parent the process is."""
    (worker,) = map(int, children(process.pid))
    return worker


def java_of(process: subprocess.Popen[str]) -> int:
    (java,) = [int(child) for child in children(worker_of(process)) if comm(child) == "java"]
    return java
