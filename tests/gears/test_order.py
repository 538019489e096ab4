"""Whatever the workers' pace, what is published is the source's history in order and without gaps."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.capture.gears.method import Task
from headgate.capture.gears.tasks import TaskLine
from headgate.capture.source import SourceFreshness
from headgate.clock import SystemClock
from headgate.delta.changes import BEGINNING
from headgate.errors import TransientError
from tests.gears.scripted import ScriptedMethod, assert_gap_free, gears, running

NOTHING = timedelta(0)


@settings(max_examples=20)
@given(
    delays=st.lists(st.sampled_from([0.0, 0.0005, 0.001, 0.003]), min_size=1, max_size=8),
    workers=st.integers(1, 4),
    queue=st.integers(0, 3),
    trouble=st.sampled_from([(), ("read",), ("publish",), ("plan", "read")]),
)
def test_publication_is_in_order_and_gap_free(
    delays: list[float], workers: int, queue: int, trouble: tuple[str, ...]
) -> None:
    method = ScriptedMethod(SystemClock())
    method.read_delay = lambda number: delays[number % len(delays)]
    for step in trouble:
        method.trouble[step] = [TransientError("the connection was lost")]
    with running(method, SystemClock(), gears((0, workers), queue=queue)) as agent:
        futures = []
        for _ in range(12):
            method.commit()
            futures.append(agent.submit(None, timedelta(seconds=30)))
        outcomes = [future.result(30) for future in futures]
        assert all(outcome.met for outcome in outcomes)
        assert [outcome.captured.position >= need for need, outcome in enumerate(outcomes, 1)] == [True] * 12
    assert_gap_free(method)
    assert method.published[-1][1] == 12
    assert method.most_reading <= workers


@given(st.data())
def test_the_line_publishes_in_order_however_tasks_are_read(data: st.DataObject) -> None:
    line: TaskLine[int, int] = TaskLine(SourceFreshness(0, BEGINNING))
    planned, published = 0, 0
    reading: list[int] = []
    publishing: int | None = None
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["plan", "take", "read", "begin", "end"])):
            case "plan":
                planned += 1
                line.add(Task(planned, planned * 10, planned), SourceFreshness(planned * 10, BEGINNING), NOTHING)
            case "take":
                task = line.take()
                assert (task is None) == (line.unread == len(reading))
                if task is not None:
                    reading.append(task.number)
            case "read" if reading:
                number = reading.pop(data.draw(st.integers(0, len(reading) - 1)))
                line.put_back(number, number, NOTHING)
            case "begin":
                due = line.next_to_publish()
                if due is not None:
                    assert publishing is None and due == (published + 1, published + 1)
                    publishing = due[0]
            case "end" if publishing is not None:
                line.published()
                published, publishing = publishing, None
        assert line.captured.position == published * 10
        assert line.planned.position == planned * 10
        assert len(line) == planned - published
        assert line.captured.position <= line.reading.position <= line.planned.position
