"""Where first rows stand among a table's events."""

from __future__ import annotations

import pyarrow as pa

from headgate.capture.source import FirstLoad
from headgate.delta.changes import POSITION
from headgate.runtime.stages.load_place import LoadPlace


def test_events_of_a_table_without_a_load_are_those_of_the_jobs() -> None:
    place = LoadPlace.of(None)
    events = pa.table({POSITION: [3, 5]})
    assert place.positions(0, 9) == (0, 9) and place.in_order(events) is events


def test_before_its_first_rows_are_in_the_log_a_table_has_no_events() -> None:
    for load in (FirstLoad(), FirstLoad(read_at=20)):
        assert LoadPlace.of(load).positions(0, 1000) is None


def test_the_job_with_the_first_rows_has_what_came_since_they_were_read_and_nothing_from_before() -> None:
    place = LoadPlace.of(FirstLoad(read_at=20, entered_at=33))
    assert place.positions(0, 32) is None
    assert place.positions(0, 40) == place.positions(30, 40) == (19, 40)
    assert place.positions(33, 40) == (33, 40)
    events = pa.table({POSITION: [24, 32, 33, 33, 40]})
    assert place.in_order(events).column(POSITION).to_pylist() == [24, 32, 20, 20, 40]
