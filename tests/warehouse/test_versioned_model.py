"""Random jobs, materializations, releases and reopenings against a plain Python model."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headgate.delta.changes import JobId
from headgate.errors import SnapshotGone
from headgate.warehouse.base import FileLimits
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.table_ranges import Pin
from headgate.warehouse.versioned import VersionedTable
from tests.warehouse.model import BY_KEY, BY_NUMBER, SCHEMA, Key, Model, canonical, change_set

A = [None, 1, 2, 3, 2**62, -5]
B = [None, "", "x", "漢" * 40, "y:1", "~"]
KEYS: list[Key] = [(a, b) for a in A for b in B]
SMALL = FileLimits(rows_per_file=6, rows_per_group=2, overlay_bytes=40_000, local_rows=3)

edits = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 60)), max_size=12)
steps = st.one_of(
    st.tuples(st.just("jobs"), st.lists(edits, min_size=1, max_size=3)),
    st.tuples(st.just("fold"), st.integers(0, 3)),
    st.tuples(st.just("release"), st.integers(0, 4)),
    st.tuples(st.just("pin"), st.integers(0, 4)),
    st.tuples(st.just("unpin"), st.integers(0, 4)),
    st.tuples(st.just("vacuum"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)
programs = st.lists(steps, min_size=1, max_size=12)


def lead_values(spec: TableSpec) -> pa.Table:
    values = A if spec.lead == "a" else [None, 0, 1, 2, 3]
    return pa.table({spec.lead: pa.array(values, spec.arrow_schema.field(spec.lead).type)})


class Run:
    """A table and its model side by side."""

    def __init__(self, spec: TableSpec, folder: str) -> None:
        self.spec = spec
        self.folder = folder
        self.model = Model(spec)
        self.table = VersionedTable.open(folder, spec, limits=SMALL)
        self.pins: list[Pin] = []

    def step(self, name: str, value: object, session: SparkSession | None) -> None:
        table = self.table
        if name == "jobs":
            after, rows = self.model.job, []
            for job in value:  # type: ignore[attr-defined]
                rows += self.model.run(job)
            table.apply(change_set(self.spec, rows, after, self.model.job), JobId(self.model.job))
        elif name == "fold":
            upto = JobId(max(table.base_through, table.through - int(value)))  # type: ignore[call-overload]
            if session is not None or table.changes(table.base_through, upto) is None:
                table.materialize(session, upto)
            elif table.changes(table.base_through, upto).in_memory:  # type: ignore[union-attr]
                table.materialize(None, upto)
        elif name == "release":
            table.release(JobId(max(0, table.through - int(value))))  # type: ignore[call-overload]
        elif name == "pin":
            self.pins.append(table.pin(JobId(max(table.retain_from, table.through - int(value)))))  # type: ignore[call-overload]
        elif name == "unpin" and self.pins:
            self.pins.pop(int(value) % len(self.pins)).release()  # type: ignore[call-overload]
        elif name == "vacuum":
            table.vacuum()
        elif name == "reopen":
            self.pins = []
            through = table.base_through
            lost = [job for job in self.model.snapshots if job > through]
            self.table = VersionedTable.open(
                self.folder, self.spec, version=table.version, through=through, limits=SMALL
            )
            for job in lost:
                del self.model.snapshots[job]
            self.model.job = through

    def readable(self) -> list[JobId]:
        pinned = {pin.job for pin in self.pins}
        return [JobId(job) for job in sorted({*range(self.table.retain_from, self.table.through + 1), *pinned})]

    def check(self) -> None:
        for job in self.readable():
            found = self.table.lookup((self.spec.lead,), lead_values(self.spec), job, tuple(SCHEMA.names))
            assert canonical(found.to_pylist()) == canonical(self.model.snapshots[job].values())
            assert self.table.count(job) == len(self.model.snapshots[job])
        self.check_changes()

    def check_changes(self) -> None:
        first, last = self.table.retain_from, self.table.through
        for after in range(first, last + 1):
            changes = self.table.changes(JobId(after), last)
            total: dict[str, int] = {}
            rows = changes.read(1_000_000).to_pylist() if changes is not None else []
            assert changes is None or changes.rows == len(rows)
            for found in rows:
                assert after < found.pop("__job") <= last
                weight = found.pop("__weight")
                text = canonical([found])[0]
                total[text] = total.get(text, 0) + weight
            for sign, job in ((-1, last), (1, after)):
                for text in canonical(self.model.snapshots[job].values()):
                    total[text] = total.get(text, 0) + sign
            assert not any(total.values())


@pytest.mark.parametrize("spec", [BY_KEY, BY_NUMBER], ids=["by key", "by other columns"])
def test_every_retained_snapshot_equals_the_model(spec: TableSpec) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs)
    def check(program: list[tuple[str, object]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(spec, f"{folder}/table")
            for name, value in program:
                run.step(name, value, None)
                run.check()

    check()


@pytest.mark.slow
@pytest.mark.parametrize("spec", [BY_KEY, BY_NUMBER], ids=["by key", "by other columns"])
def test_frames_equal_the_model(spec: TableSpec, spark: SparkSession) -> None:
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs)
    def check(program: list[tuple[str, object]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(spec, f"{folder}/table")
            for name, value in program:
                run.step(name, value, spark)
            run.check()
            for job in run.readable()[-3:]:
                found = run.table.frame(spark, job).toArrow().cast(spec.arrow_schema)
                assert canonical(found.to_pylist()) == canonical(run.model.snapshots[job].values())

    check()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs, st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
def test_lookups_by_the_whole_key_are_null_safe(program: list[tuple[str, object]], wanted: list[Key]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(BY_KEY, f"{folder}/table")
        for name, value in program:
            run.step(name, value, None)
        keys = pa.table({"b": pa.array([key[1] for key in wanted], pa.string()), "a": [key[0] for key in wanted]})
        for job in run.readable():
            found = run.table.lookup(("b", "a"), keys, job, ("a", "b", "number"))
            expected = [
                {name: rows[name] for name in ("a", "b", "number")}
                for key, rows in run.model.snapshots[job].items()
                if key in wanted
            ]
            assert canonical(found.to_pylist()) == canonical(expected)


def test_a_job_that_is_not_retained_is_refused(tmp_path: object) -> None:
    run = Run(BY_KEY, f"{tmp_path}/table")
    run.step("jobs", [{(1, "x"): 1}, {(1, "x"): 2}, {(1, "x"): 3}], None)
    run.table.release(JobId(2))
    run.table.materialize(None, JobId(2))
    for job in (0, 1, 4):
        with pytest.raises(SnapshotGone, match=r"holds jobs 2 to 3"):
            run.table.lookup(("a",), lead_values(BY_KEY), JobId(job), ("a",))
    with pytest.raises(SnapshotGone):
        run.table.changes(JobId(1), JobId(3))
