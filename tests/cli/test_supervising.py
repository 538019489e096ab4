"""The parent of the service with workers that are a few lines of Python: what ends, what is started again, and how signals go."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
from typing import Any

import pytest

from headgate.cli.exits import FAILED, INTERRUPTED, RESTART
from headgate.cli.supervising import RestartLimits
from tests.cli.processes import is_alive
from tests.waiting import eventually

HEAD = """
import logging, os, signal, sys, time
from datetime import timedelta
from headgate.cli import supervising
from headgate.cli.supervising import RestartLimits, supervise

logging.basicConfig(level="INFO")
supervising._KILL_SECONDS = float(sys.argv[1])
worker = supervise(RestartLimits(deaths=3, pause=timedelta(milliseconds=10)))

def die(number):
    os.kill(os.getpid(), number)
    time.sleep(600)

def say(*words):
    print(os.getpid(), *words, flush=True)
"""


def begin(program: str, kill_seconds: float = 600, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(program), str(kill_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def ended(program: str) -> tuple[int, str, str]:
    """Code, output and log of a parent whose workers run this."""
    with begin(program) as process:
        out, said = process.communicate(timeout=60)
    return process.returncode, out, said


def said_by_worker(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


@pytest.mark.parametrize("code", [0, 1, 2, 4, INTERRUPTED])
def test_a_worker_that_ends_by_itself_gives_its_code(code: int) -> None:
    assert ended(f"say('begun'); sys.exit({code})")[::2] == (code, "")


def test_a_worker_that_died_is_followed_by_one_that_knows_why() -> None:
    code, out, said = ended(
        """
        say(worker.restarts, worker.parent == os.getppid(), worker.restarted_at is not None, worker.why)
        if worker.restarts == 0:
            worker.tell("Java ended")
            sys.exit(75)
        if worker.restarts == 1:
            die(signal.SIGKILL)
        """
    )
    assert code == 0
    told = [line.split(maxsplit=1) for line in out.splitlines()]
    assert len({pid for pid, _ in told}) == 3
    assert [words for _, words in told] == [
        "0 True False None",
        "1 True True Java ended",
        "2 True True its process was killed (SIGKILL), as the system does when memory runs out",
    ]
    assert "event=worker_died pause=0 the service is started again: Java ended" in said


def test_after_too_many_deaths_the_parent_ends_with_one_line() -> None:
    code, out, said = ended("say('begun'); worker.tell('Java ended'); sys.exit(75)")
    assert code == RESTART and len(out.splitlines()) == 3
    *_, line, hint = said.splitlines()
    assert line == "error: the service died 3 times within 10 min, the last time: Java ended"
    assert hint.startswith("hint: ")


def test_deaths_of_long_ago_do_not_count_and_quick_ones_take_pauses() -> None:
    limits = RestartLimits()
    assert [limits.pause_after([0] * deaths) for deaths in range(1, 6)] == [0, 1, 2, 4, None]
    assert limits.pause_after([601, 601, 601, 601, 0]) == 0
    assert limits.pause_after([700, 599, 300, 200, 0]) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once_and_the_worker_ends_in_order(number: int) -> None:
    with begin(
        """
        heard = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: heard.append(number))
        say("ready")
        while not heard:
            signal.pause()
        time.sleep(0.2)
        say(len(heard))
        """
    ) as process:
        worker, _ = said_by_worker(process)
        # To the group, as Ctrl-C in a terminal.
        os.killpg(process.pid, number)
        assert said_by_worker(process) == [worker, "1"]
        assert process.wait(60) == 0


def test_a_worker_that_does_not_end_is_killed() -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(600)"
    for kill_seconds, signals in ((0.5, 1), (600, 2)):
        with begin(deaf, kill_seconds) as process:
            said_by_worker(process)
            for number in (signal.SIGTERM, signal.SIGINT)[:signals]:
                process.send_signal(number)
            _, said = process.communicate(timeout=60)
        assert process.returncode == FAILED and "it is killed; what is committed is durable" in said


def test_a_worker_that_has_no_handler_yet_ends_quietly() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with begin("say('ready'); time.sleep(600)") as process:
            said_by_worker(process)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (INTERRUPTED, "")


HEARS = """
heard = []
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: heard.append(number))
say("ready")
while not heard:
    signal.pause()
say(signal.Signals(heard[0]).name)
"""


def test_a_hangup_is_passed_on_as_it_is() -> None:
    with begin(HEARS) as process:
        worker, _ = said_by_worker(process)
        process.send_signal(signal.SIGHUP)
        assert said_by_worker(process) == [worker, "SIGHUP"]


def test_the_end_of_its_terminal_ends_the_service() -> None:
    terminal, theirs = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with begin(HEARS, preexec_fn=take_terminal, pass_fds=[theirs]) as process:
        os.close(theirs)
        worker, _ = said_by_worker(process)
        os.close(terminal)
        assert said_by_worker(process) == [worker, "SIGTERM"]
        assert process.wait(60) == 0


def test_stopping_while_spark_is_dead_ends_well() -> None:
    with begin("signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); say('ready'); time.sleep(600)") as process:
        said_by_worker(process)
        process.terminate()
        assert process.wait(60) == 0


def test_a_worker_does_not_outlive_its_parent() -> None:
    with begin("worker.end_with_parent(); say('ready'); time.sleep(600)") as process:
        worker = int(said_by_worker(process)[0])
        process.kill()
        process.wait()
        eventually(lambda: not is_alive(worker))


def test_what_a_killed_worker_leaves_behind_is_killed_too() -> None:
    with begin(
        """
        import subprocess
        if worker.restarts == 0:
            left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
            print(left.pid, flush=True)
            die(signal.SIGKILL)
        """
    ) as process:
        left = int(said_by_worker(process)[0])
        assert process.wait(60) == 0
    eventually(lambda: not is_alive(left))
