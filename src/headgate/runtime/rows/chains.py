"""Rows that replace one another, on whole Arrow columns: the rows of a key, of a group, one after the other.

    before the batch ── step ── step ── step        each step:  -the row before  +its own row

It serves what the driver holds. For a source table it is what `dataflow.rules.replica` says in SQL, for plain upserts and
deletes; what needs more (truncations, values left out, observed rows) goes through the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.dataflow.relation import UNTIL
from headgate.dataflow.rules.replica import TRANSACTION_AT
from headgate.delta.changes import COMMIT_AT, JOB, POSITION, WEIGHT
from headgate.delta.events import DELETE, OP, SEQUENCE
from headgate.warehouse.codes import code, ranks

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """The row of each step and the row before it (-1 for none), as places in a table."""

    row: Numbers
    before: Numbers

    def changes(self, arrived: Mask, there: Mask) -> tuple[Numbers, Numbers, Numbers]:
        """(row, the step's row, weight) of each change; `arrived` rows are the batch's own, a row not `there` is a gap."""
        went = arrived[self.row] & (self.before >= 0) & there[self.before]
        came = arrived[self.row] & there[self.row]
        weights = np.repeat(np.array([-1, 1], dtype=np.int64), [int(went.sum()), int(came.sum())])
        rows = np.concatenate([self.before[went], self.row[came]])
        return rows, np.concatenate([self.row[went], self.row[came]]), weights


def steps_of(place: Numbers, moment: Numbers, sequence: Numbers | None = None) -> Steps:
    """By place and moment; of several rows of one moment the last in sequence counts."""
    order = np.lexsort((moment, place) if sequence is None else (sequence, moment, place))
    if len(order) > 1:
        same = (place[order[1:]] == place[order[:-1]]) & (moment[order[1:]] == moment[order[:-1]])
        order = order[np.append(~same, True)]
    before = np.append(np.int64(-1), order[:-1])[: len(order)]
    before[1:][place[order[1:]] != place[order[:-1]]] = -1
    return Steps(order, before)


def transaction_changes(events: pa.Table, old: pa.Table | None, key: tuple[str, ...], names: list[str]) -> pa.Table:
    """One step per key and transaction: -image before, +image after; `names` are the columns of an image.

    `events` have a job; `old` holds the replica's rows of (at least) the events' keys.
    """
    images = events.select(names)
    known = 0
    if old is not None:
        known = old.num_rows
        images = pa.concat_tables([old.select(names).cast(images.schema), images])
    place, _ = ranks(code(images, key))
    position = _after_known(known, events.column(POSITION), -1)
    there = _after_known(known, events.column(OP), -1) != DELETE
    steps = steps_of(place, position, _after_known(known, events.column(SEQUENCE), 0))
    image, cause, weight = steps.changes(position >= 0, there)
    causes = events.select([POSITION, COMMIT_AT, JOB]).take(pa.array(cause - known))
    rows = images.take(pa.array(image))
    for name, column in ((POSITION, POSITION), (TRANSACTION_AT, COMMIT_AT), (JOB, JOB)):
        rows = rows.append_column(name, causes.column(column))
    return rows.append_column(WEIGHT, pa.array(weight))


def job_changes(changes: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Changes per transaction summed up per job: a key's first image that went and its last that came."""
    place, count = ranks(code(changes, (*key, JOB)))
    position = numbers_of(changes.column(POSITION))
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, -1)
    np.minimum.at(first, place, position)
    np.maximum.at(last, place, position)
    went = numbers_of(changes.column(WEIGHT)) < 0
    return changes.filter(pa.array(np.where(went, position == first[place], position == last[place])))


def group_changes(rows: pa.Table, group: Sequence[str], compared: Sequence[str], size: str | None) -> pa.Table:
    """Groups before the batch (job 0) and after each of its jobs, as changes with job and weight.

    A group whose `size` is 0 is gone. A job that leaves the `compared` columns as they were changes nothing.
    """
    place, _ = ranks(code(rows, group))
    job = numbers_of(rows.column(JOB))
    there = np.ones(len(job), dtype=np.bool_) if size is None else numbers_of(rows.column(size)) > 0
    steps = steps_of(place, job)
    image, cause, weight = steps.changes((job > 0) & ~_unchanged(rows, steps, compared), there)
    found = rows.drop_columns([JOB]).take(pa.array(image))
    return found.append_column(JOB, pa.array(job[cause])).append_column(WEIGHT, pa.array(weight))


def spans(changes: pa.Table, key: Sequence[str]) -> pa.Table | None:
    """Changes of a table with a key as spans: a row that came with the job at which it goes, one from before with job 0.

    None when no row comes and goes within the changes.
    """
    job, weight = numbers_of(changes.column(JOB)), numbers_of(changes.column(WEIGHT))
    if not (weight < 0).any() or job[0] == job[-1]:
        return None
    place, _ = ranks(code(changes, key))
    order = np.lexsort((weight, job, place))
    came = weight[order] > 0
    follows = np.append(False, place[order[1:]] == place[order[:-1]])
    after_came = np.append(False, came[:-1])
    ends = follows & ~came & after_came
    # What does not come and go by turns is none of a key's rows.
    if not ends.any() or (follows & (came == after_came)).any():
        return None
    until = np.where(came, 0, job[order])
    until[:-1][ends[1:]] = job[order[1:]][ends[1:]]
    kept = ~ends
    begin = np.where(came, job[order], 0)[kept]
    rows = changes.drop_columns([JOB, WEIGHT]).take(pa.array(order[kept]))
    end = until[kept]
    rows = rows.append_column(JOB, pa.array(begin))
    rows = rows.append_column(WEIGHT, pa.array(np.ones(len(begin), dtype=np.int64)))
    return rows.append_column(UNTIL, pa.array(end, mask=end == 0))


def _unchanged(rows: pa.Table, steps: Steps, columns: Sequence[str]) -> Mask:
    """By row: whether the row before it has the same values."""
    follows = steps.before >= 0
    now, before = steps.row[follows], steps.before[follows]
    same = np.ones(len(now), dtype=np.bool_)
    for name in columns:
        values = rows.column(name)
        if not pa.types.is_nested(values.type):
            one, other = values.take(pa.array(now)), values.take(pa.array(before))
            both_null = pc.and_(pc.is_null(one), pc.is_null(other))
            same &= np.asarray(pc.or_(pc.fill_null(pc.equal(one, other), False), both_null))
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    found[now] = same
    return found


def numbers_of(values: pa.ChunkedArray) -> Numbers:
    return np.asarray(values, dtype=np.int64)


def _after_known(known: int, values: pa.ChunkedArray, of_known: int) -> Numbers:
    return np.concatenate([np.full(known, of_known, dtype=np.int64), numbers_of(values)])
