"""The signal: whoever waits looks again after every change, and misses none."""

from __future__ import annotations

import threading
import time

import pytest

from headgate.runtime.signal import Signal


def test_a_change_between_looking_and_waiting_is_not_missed() -> None:
    signal, looks = Signal(), []

    def holds() -> bool:
        looks.append(signal.count)
        if len(looks) == 1:
            # Another thread changes something just after this one has looked.
            signal.notify()
        return len(looks) == 2

    assert signal.wait_until(holds)
    assert looks == [0, 1]


def test_waiting_ends_at_its_time_or_with_what_the_condition_raises() -> None:
    signal = Signal()
    assert not signal.wait_until(lambda: False, time.monotonic() + 0.01)
    with pytest.raises(ZeroDivisionError):
        signal.wait_until(lambda: 1 // 0 > 0)


def test_every_waiting_thread_is_woken() -> None:
    signal, moved = Signal(), threading.Event()
    threads = [threading.Thread(target=signal.wait_until, args=[moved.is_set], daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    moved.set()
    signal.notify()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
