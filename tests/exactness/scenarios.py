"""Random scenarios: tables, flows over them, and a course of transactions, cuts, runs, materializations and openings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.runtime.stages.ways import Way
from tests.exactness import grammar, values
from tests.exactness.choosing import Chooser
from tests.exactness.expressions import Column
from tests.exactness.model import Change, Delete, Dimension, Insert, Row, Table, Truncate, Update
from tests.exactness.world import START, View, World


@dataclass(frozen=True)
class Commit:
    changes: tuple[Change, ...]
    initial: bool = False
    same_time: bool = False
    """Commits at the time of the transaction before."""


CLOSE, REFRESH, MATERIALIZE, REOPEN = "close", "refresh", "materialize", "reopen"


@dataclass(frozen=True)
class Forced:
    """The next batches are taken in this way."""

    way: Way


@dataclass(frozen=True)
class Move:
    """The results of a flow are stored elsewhere, drawn from all places that there are."""

    number: int


@dataclass(frozen=True)
class Regime:
    """How the flows of a scenario are kept up to date."""

    name: str
    limits: Mapping[str, int]
    fold_percent: int = 15
    """How often the tables are materialized after a job."""
    batch_percent: int = 33
    """How often a job waits for the next one."""
    draws_ways: bool = False
    """Whether each batch is taken in a way of its own."""
    moves: int = 0
    """How many flows' results are stored elsewhere after each run."""


Action = Commit | Forced | Move | str

REGIMES = (
    Regime("tables read whole", {"small_table_rows": 1000}),
    Regime("rows looked up", {"small_table_rows": 1}),
    Regime("some tables read whole, others looked up", {"small_table_rows": 3}, draws_ways=True),
    Regime("many jobs in a batch", {"small_table_rows": 1}, batch_percent=80, draws_ways=True),
    Regime("every batch in another way", {"small_table_rows": 1, "batch_rows": 8}, batch_percent=60, draws_ways=True),
    Regime("folded after every job", {"small_table_rows": 1}, fold_percent=100, batch_percent=10),
    Regime("results stored elsewhere", {"small_table_rows": 1}, batch_percent=50, moves=3),
)


@dataclass(frozen=True)
class Scenario:
    regime: Regime
    tables: Mapping[str, Table]
    dimensions: tuple[Dimension, ...]
    views: tuple[View, ...]
    actions: tuple[Action, ...]

    def run(self, folder: Path, spark: SparkSession) -> None:
        """Does everything, comparing after each run, and all retained jobs again at the end."""
        limits = {"rows_per_file": 4, **self.regime.limits}
        with World(folder, spark, self.tables, self.dimensions, self.views, limits) as world:
            for action in self.actions:
                _do(world, action)
            world.check_new_jobs()
            world.check_all()


def _do(world: World, action: Action) -> None:
    match action:
        case Commit(changes, initial, same_time):
            known = world.model.transactions
            last = known[-1].commit_at if known else START
            moment = last if same_time else last + timedelta(seconds=61)
            world.commit(*changes, commit_at=moment, initial=initial)
        case Forced(way):
            world.way = way
        case Move(number):
            world.move(number)
        case "close":
            world.close_job()
        case "refresh":
            world.refresh()
            world.check_new_jobs()
        case "materialize":
            world.materialize()
        case "reopen":
            world.reopen()
            world.check_new_jobs()


def scenario(choose: Chooser, regime: Regime, flows: int = 4) -> Scenario:
    kinds = _tables(choose)
    tables = {name: Table({c: values.TYPES[k] for c, k in found.items()}, _key(found)) for name, found in kinds.items()}
    dimensions = _dimensions(choose, kinds)
    return Scenario(
        regime, tables, dimensions, _views(choose, kinds, dimensions, flows), _actions(choose, kinds, regime)
    )


def _tables(choose: Chooser) -> dict[str, dict[str, str]]:
    """Kinds of columns by table; every table refers to the first one's key by `ref`."""
    shared = choose.pick(values.KEY_KINDS)
    tables: dict[str, dict[str, str]] = {}
    for number in range(choose.number(2, 3)):
        columns = {"k0": shared if number == 0 else choose.pick(values.KEY_KINDS)}
        if number and choose.maybe(25):
            columns["k1"] = choose.pick(values.KEY_KINDS)
        columns["ref"] = shared
        for index in range(choose.number(2, 4)):
            columns[f"v{index}"] = choose.pick(tuple(values.TYPES))
        tables[f"t{number}"] = columns
    return tables


def _key(columns: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in columns if name.startswith("k"))


def _dimensions(choose: Chooser, kinds: Mapping[str, Mapping[str, str]]) -> tuple[Dimension, ...]:
    if not choose.maybe(60):
        return ()
    tracked = [name for name in kinds["t0"] if name != "k0"]
    track = tuple(choose.some(tracked, 1, 2)) if choose.maybe(50) else None
    found = [Dimension("dim", "t0", track=track)]
    if choose.maybe(30):
        found.append(Dimension("latest", "t1", scd_type=1))
    return tuple(found)


def _views(
    choose: Chooser, kinds: Mapping[str, Mapping[str, str]], dimensions: Sequence[Dimension], count: int
) -> tuple[View, ...]:
    relations = [
        grammar.Relation(f"s.{name}", tuple(Column(column, kind) for column, kind in columns.items()))
        for name, columns in kinds.items()
    ]
    sources = list(relations)
    for dimension in dimensions:
        columns = dict(kinds[dimension.source])
        relations.append(grammar.Relation(dimension.name, tuple(Column(name, kind) for name, kind in columns.items())))
    views: list[View] = []
    for number in range(count):
        if any(dimension.scd_type == 2 for dimension in dimensions) and choose.maybe(20):
            views.append(_lookup(choose, f"f{number}", sources[1], sources[0]))
            continue
        view, relation = grammar.view(choose, f"f{number}", relations)
        views.append(view)
        if choose.maybe(25):
            relations.append(relation)
    return tuple(views)


def _lookup(choose: Chooser, name: str, facts: grammar.Relation, dimension: grammar.Relation) -> View:
    """An as-of lookup, and the same as a range join."""
    miss = choose.pick(("unknown", "drop", "null"))
    fact = choose.pick(facts.columns).sql
    attribute = choose.pick(dimension.columns).sql
    shape = choose.pick(("plain", "grouped", "validity"))
    join = "LEFT JOIN" if miss == "null" else "JOIN"
    surrogate_key = "coalesce(d.__sk, -1)" if miss == "unknown" else "d.__sk"
    head, tail = f"f.{fact} AS c0, d.{attribute} AS c1, {{}} AS c2", ""
    if shape == "grouped":
        head, tail = "{} AS c0, count(*) AS c1", " GROUP BY d.__sk"
    elif shape == "validity":
        head = f"f.{fact} AS c0, d.__start_at AS c1, d.__end_at AS c2"
    valid = "d.k0 = f.ref AND d.__start_at <= f.__commit_at AND (d.__end_at IS NULL OR f.__commit_at < d.__end_at)"
    return View(
        name,
        f"SELECT {head.format('d.__sk')} FROM {facts.name} f {join} dim FOR SYSTEM_TIME AS OF f.__commit_at d"
        f" ON d.k0 = f.ref{tail}",
        f"SELECT {head.format(surrogate_key)} FROM {facts.name} f {'JOIN' if miss == 'drop' else 'LEFT JOIN'} dim d"
        f" ON {valid}{tail}",
        None if miss == "null" else miss,
    )


def _actions(choose: Chooser, kinds: Mapping[str, Mapping[str, str]], regime: Regime) -> tuple[Action, ...]:
    loaded = tuple(
        _insert(choose, name, columns) for name, columns in kinds.items() for _ in range(choose.number(1, 4))
    )
    actions: list[Action] = [Commit(loaded, choose.maybe(40))]
    for job in range(choose.number(2, 4)):
        for _ in range(choose.pick((1, 1, 2, 3)) if job else choose.number(0, 2)):
            changes = tuple(_change(choose, kinds) for _ in range(choose.number(1, 5)))
            actions.append(Commit(changes, same_time=choose.maybe(10)))
        if regime.draws_ways:
            actions.append(Forced(choose.pick(tuple(Way))))
        actions.append(CLOSE if choose.maybe(regime.batch_percent) else REFRESH)
        actions.extend(Move(choose.number(0, 1 << 20)) for _ in range(regime.moves))
        if choose.maybe(regime.fold_percent):
            actions.append(MATERIALIZE)
        if choose.maybe(12):
            actions.append(REOPEN)
    actions.append(REFRESH)
    return tuple(actions)


def _insert(choose: Chooser, table: str, columns: Mapping[str, str]) -> Insert:
    key: Row = {name: values.key_value(choose, columns[name]) for name in _key(columns)}
    others = [name for name in columns if name not in key]
    given = choose.some(others, len(others) - 1, len(others))
    return Insert(table, {**key, **{name: values.value(choose, columns[name]) for name in given}})


def _change(choose: Chooser, kinds: Mapping[str, Mapping[str, str]]) -> Change:
    table = choose.pick(tuple(kinds))
    columns = kinds[table]
    key: Row = {name: values.key_value(choose, columns[name]) for name in _key(columns)}
    others = [name for name in columns if name not in key]
    what = choose.number(0, 99)
    if what < 50:
        return _insert(choose, table, columns)
    if what < 70:
        return Update(
            table, {**key, **{name: values.value(choose, columns[name]) for name in choose.some(others, 1, 2)}}
        )
    if what < 80:
        moved: Row = {name: values.key_value(choose, columns[name]) for name in key}
        return Update(table, {**moved, **{name: values.value(choose, columns[name]) for name in others}}, key)
    if what < 97:
        return Delete(table, key)
    return Truncate(table)
