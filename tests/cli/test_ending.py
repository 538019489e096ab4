"""The end of the service's process when its parts do not want to end; without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from headgate.cli.exits import FAILED, INTERRUPTED, RESTART

SCRIPT = """
import ctypes, logging, signal, sys
from headgate.cli import ending

logging.basicConfig(level="INFO")
ending.STOP_SECONDS = float(sys.argv[1])
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
watch = ending.Ending()
with watch.watched():
    if sys.argv[2:]:
        watch.restart(sys.argv[2])
    print("ready", flush=True)
    # A call that neither returns nor lets Python handle a signal: a mutex is locked twice.
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""
LONG = "600"


def begin(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_hangs_is_ended_after_its_time(number: int) -> None:
    with begin("0.5") as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == FAILED and "what is committed is durable" in said


def test_the_second_signal_ends_the_process_at_once() -> None:
    with begin(LONG) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and "a second signal" in said


def test_a_lost_spark_ends_the_process_with_a_code_that_asks_for_another() -> None:
    began = time.monotonic()
    with begin(LONG, "its Java process was killed (SIGKILL)") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == RESTART == 75 and time.monotonic() - began < 60
    assert "event=restart code=75 Spark has to be started again: its Java process was killed (SIGKILL)" in said
