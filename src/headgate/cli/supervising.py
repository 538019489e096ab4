"""The parent of the service: it holds the listening socket, and starts the service again when Spark or the service's process died.

    headgate run (parent) ──── socket, signals ────▶ worker (warehouse, Spark's Java process)
                          ◀──── why the worker ends ───

The parent has no threads and imports neither Spark nor the warehouse, so a worker is a fork of the parent: the same options, the
same socket, and nothing left of the worker before. Clients that connect while there is no worker wait in the socket's queue.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headgate.cli.ending import STOP_SECONDS
from headgate.cli.exits import FAILED, INTERRUPTED, RESTART, error_lines
from headgate.cli.terminal import tell
from headgate.text import ending_text

_LOGGER = logging.getLogger("headgate.service")
_KILL_SECONDS = STOP_SECONDS + 0.3
"""From the signal until a worker that did not end by itself is killed."""
_KILL_AT_ONCE_SECONDS = 0.5
"""The same from the second signal."""
_LONGEST_REASON = 4096
_STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """How often a worker may die before the parent gives up, and how long the parent waits after each death."""

    deaths: int = 5
    within: timedelta = timedelta(minutes=10)
    pause: timedelta = timedelta(seconds=1)
    """After the second death within that time, doubled with every further one; there is none after the first."""

    def pause_after(self, ages: Sequence[float]) -> float | None:
        """Seconds until the next start, from how many seconds ago each worker died; None when too many did."""
        recent = sum(age <= self.within.total_seconds() for age in ages)
        if recent >= self.deaths:
            return None
        return 0.0 if recent < 2 else self.pause.total_seconds() * 2.0 ** (recent - 2)


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker knows of its parent and of the workers before."""

    parent: int
    restarts: int = 0
    """How many workers died before this one."""
    restarted_at: datetime | None = None
    why: str | None = None
    """Why the worker before died."""
    line: socket.socket | None = None
    """To the parent: takes the reason of an end, and has nothing to read until the parent is gone."""

    def tell(self, why: str) -> None:
        """Tells the parent why this worker is about to end."""
        assert self.line is not None
        with suppress(OSError):
            self.line.send(why.encode()[:_LONGEST_REASON])

    def end_with_parent(self) -> None:
        """From now on the end of the parent, of whatever kind, ends this process as SIGTERM does."""

        def watch(line: socket.socket) -> None:
            with suppress(OSError):
                line.recv(1)
            _LOGGER.warning("the parent process is gone: the service ends")
            os.kill(os.getpid(), signal.SIGTERM)

        assert self.line is not None
        threading.Thread(target=watch, args=[self.line], name="parent", daemon=True).start()


def supervise(limits: RestartLimits | None = None) -> Worker:
    """Starts a worker, and another one whenever a worker died. Returns in the workers; the parent ends in here.

    A worker died if it ended with the code RESTART or by a signal that the parent did not pass on. Every other end is the
    parent's end too, with the same code.
    """
    limits = limits or RestartLimits()
    signals = _Signals()
    worker, deaths = Worker(os.getpid()), list[float]()
    while True:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        # What is buffered would be written by both.
        sys.stdout.flush()
        sys.stderr.flush()
        with signals.blocked():
            pid = os.fork()
            if pid == 0:
                signals.give_back()
                ours.close()
                _leave_terminal()
                return replace(worker, line=theirs)
        theirs.close()
        with suppress(OSError):
            # Whoever is first: a signal to the group must not miss Spark's process.
            os.setpgid(pid, pid)
        code, sent = _until_end(pid, signals)
        if code == RESTART or code < 0:
            # Spark's process, which may live on when its parent was killed.
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        else:
            sys.exit(code)
        if sent.intersection(_STOPPING) or -code in sent:
            sys.exit(_code_of_stopped(code))
        with ours:
            why = _reason(code, ours)
        now = time.monotonic()
        deaths = [*deaths[1 - limits.deaths :], now]
        pause = limits.pause_after([now - death for death in deaths])
        if pause is None:
            minutes = limits.within.total_seconds() / 60
            what = f"the service died {limits.deaths} times within {minutes:.0f} min, the last time: {why}"
            for text in error_lines(what, hint="see its log; what is committed is durable"):
                tell(text, err=True)
            sys.exit(RESTART)
        _LOGGER.error("event=worker_died pause=%.0f the service is started again: %s", pause, why)
        if _is_stopped_within(pause, signals):
            sys.exit(0)
        worker = replace(worker, restarts=worker.restarts + 1, restarted_at=datetime.now(UTC), why=why)


class _Signals:
    """The signals of the parent, to be read one after another; nothing else happens when one arrives."""

    def __init__(self) -> None:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        heeded = [*_STOPPING, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            # Else it is `nohup`.
            heeded.append(signal.SIGHUP)
        self._has_terminal = _has_terminal()
        self._wakeup = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in heeded}

    def read(self, seconds: float | None) -> list[int]:
        """The numbers of signals, as soon as there are some or the time is over. That the terminal is gone ends the service."""
        ready, _, _ = select.select([self._heard], [], [], seconds)
        is_alone = self._has_terminal and not _has_terminal()
        return [
            signal.SIGTERM if number == signal.SIGHUP and is_alone else number
            for number in (self._heard.recv(64) if ready else b"")
        ]

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Signals wait until the block's end, in a worker that begins in it as well."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def give_back(self) -> None:
        """In the worker: signals do what they did before."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._heard.close()
        self._told.close()


def _has_terminal() -> bool:
    """Whether this process belongs to a terminal that is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _leave_terminal() -> None:
    """Ctrl-C is for the parent alone, which passes it on once; the worker goes on writing to the terminal."""
    with suppress(OSError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)


def _until_end(pid: int, signals: _Signals) -> tuple[int, set[int]]:
    """Passes signals on until the worker has ended; gives its code, negative of a signal, and what was passed on."""
    sent = set[int]()
    until: float | None = None
    while True:
        code = _reap(pid)
        if code is not None:
            return code, sent
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            _LOGGER.error("the service did not end: it is killed; what is committed is durable")
            os.kill(pid, signal.SIGKILL)
            left, until = None, None
        for number in signals.read(left):
            if number in _STOPPING:
                seconds = _KILL_AT_ONCE_SECONDS if sent.intersection(_STOPPING) else _KILL_SECONDS
                until = time.monotonic() + seconds
            if number != signal.SIGCHLD:
                sent.add(number)
                # SIGINT would leave a traceback in a worker that has not read its modules yet.
                os.kill(pid, signal.SIGTERM if number in _STOPPING else number)


def _reap(pid: int) -> int | None:
    """The worker's code if it has ended. In a container the parent also inherits, and so lets go, what a dead worker left."""
    while True:
        found, status = os.waitpid(-1, os.WNOHANG)
        if found == 0:
            return None
        if found == pid:
            return os.waitstatus_to_exitcode(status)


def _is_stopped_within(seconds: float, signals: _Signals) -> bool:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if any(number != signal.SIGCHLD for number in signals.read(left)):
            return True
    return False


def _code_of_stopped(code: int) -> int:
    """How the parent ends if the worker was told to stop but was ended by something else."""
    if code == RESTART:
        # Spark was dead already.
        return 0
    return FAILED if code == -signal.SIGKILL else INTERRUPTED


def _reason(code: int, told: socket.socket) -> str:
    with suppress(BlockingIOError):
        if said := told.recv(_LONGEST_REASON).decode(errors="replace"):
            return said
    return f"its process {ending_text(code)}" if code < 0 else "Spark was lost"
