"""RiTE: what a producer's rows cost until a reader sees them, against PostgreSQL and bulk appends to a Delta table.

    make bench NAME=rite SCALE=tiny|small|full

A table without a key and with six columns of whole numbers, as in "RiTE: Providing On-Demand Data for Right-Time Data Warehousing".
All sides take their rows from the same Python iterator, or from the same Arrow table or CSV file, whose making is not timed. The clock
starts with the first row, on an open connection and an empty table, and stops when a reader has COUNT(*) and SUM(quantity) of them all.
One transaction, where nothing else is said:

    postgres       insert: an INSERT for each row, prepared; batches: executemany of 10,000; copy: COPY row by row from the program, as
                   text, and copy_binary; copy_file: the server itself reads the file
    delta          append: the rows become Arrow chunk by chunk while delta-rs writes them; append_arrow: they are Arrow already
    memory         headgate with durable=False. insert: an INSERT for each row; rows: one executemany; arrow: one Arrow table;
                   insert_short: insert, with a commit every 10,000 rows; short: executemany of 10,000 and a commit, again and again;
                   long: the same with one commit
    durable        the same with each commit on the disk when it returns
    materialized   as memory, with commit(materialize=True)
    with_reader    commits every 10,000 rows; a reader sums the table all the time, and the clock stops when it sees the last row

postgres.insert and .batches load fewer rows than the others. Variants take turns, a ratio is the median of those within each
round, and one round before is not counted. The scans sum the same rows warm. `rite_delay` measures the delays of lazy commits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.report import in_turns, median, parse_scale, publish, say, seconds
from benchmarks.rite_delay import delay_figures
from benchmarks.rite_delta import Delta
from benchmarks.rite_headgate import SOURCE, Producer, connect, open_warehouse, read
from benchmarks.rite_postgres import Postgres
from benchmarks.rite_rows import Data
from benchmarks.rite_sides import Variant
from benchmarks.spark import spark_settings
from headgate import Warehouse
from headgate.runtime.spark.sessions import SparkSessions

ROWS = {"tiny": 20_000, "small": 1_000_000, "full": 10_000_000}
WARM_UP_ROWS = 1_000_000
INSERT_ROWS = {"tiny": 2_000, "small": 50_000, "full": 200_000}
BATCHES_ROWS = {"tiny": 20_000, "small": 200_000, "full": 1_000_000}
ROUNDS = {"tiny": 1, "small": 3, "full": 3}
SCANS = {"tiny": 2, "small": 9, "full": 9}
WARM_UP_SCANS = 3
IN_OVERLAY, IN_TABLE = "in_overlay", "in_table"
TABLES = tuple(f"sales_{number}" for number in range(21))
"""Each load of a round takes the next one."""

RATIOS = {
    "rows_vs_copy": ("memory.rows", "postgres.copy"),
    "rows_vs_copy_binary": ("memory.rows", "postgres.copy_binary"),
    "arrow_vs_copy_file": ("memory.arrow", "postgres.copy_file"),
    "memory_vs_insert": ("memory.insert", "postgres.insert"),
    "durable_vs_memory": ("durable.rows", "memory.rows"),
    "materialized_vs_bulk_append": ("materialized.rows", "delta.append"),
    "materialized_vs_bulk_append_arrow": ("materialized.arrow", "delta.append_arrow"),
    "short_vs_long": ("memory.short", "memory.long"),
    "short_vs_long_insert": ("memory.insert_short", "memory.insert"),
    "with_reader.memory_vs_insert": ("with_reader.memory_insert", "with_reader.postgres_insert"),
    "with_reader.memory_vs_batches": ("with_reader.memory_batches", "with_reader.postgres_batches"),
}
TARGETS = {
    "rows_vs_copy": (">=", 1.0),
    "arrow_vs_copy_file": (">=", 1.74),
    "memory_vs_insert": (">=", 10.0),
    "materialized_vs_bulk_append": (">=", 0.88),
    "short_vs_long": (">=", 0.9),
    "with_reader.memory_vs_insert": (">=", 7.3),
    "with_reader.memory_vs_batches": (">=", 5.0),
    "overlay_scan_vs_table_scan": (">=", 0.83),
}
PAPER = {
    "memory_vs_insert": 98_723 / 9_646,
    "memory_vs_bulk_load": 98_723 / 56_846,
    "materialized_vs_bulk_load": 49_878 / 56_846,
    "short_vs_long": 90_356 / 98_723,
    "with_reader": {"memory_vs_insert": 54_111 / 7_451, "memory_vs_batches": 54_111 / 10_862},
    "memory_scan_vs_table_scan": 182_786 / 219_168,
}


def variants(
    postgres: Postgres, delta: Delta, memory: Producer, durable: Producer, data: Data, scale: str
) -> dict[str, Variant]:
    few, some = data.first(INSERT_ROWS[scale]), data.first(BATCHES_ROWS[scale])
    return {
        "postgres.insert": Variant(postgres, postgres.insert, few),
        "memory.insert": Variant(memory, memory.insert, data),
        "memory.insert_short": Variant(memory, memory.insert_short, data),
        "postgres.batches": Variant(postgres, postgres.batches, some),
        "postgres.copy": Variant(postgres, postgres.copy, data),
        "postgres.copy_binary": Variant(postgres, postgres.copy_binary, data),
        "memory.rows": Variant(memory, memory.rows, data),
        "memory.short": Variant(memory, memory.batches_short, data),
        "memory.long": Variant(memory, memory.batches_long, data),
        "durable.rows": Variant(durable, durable.rows, data),
        "postgres.copy_file": Variant(postgres, postgres.copy_file, data),
        "memory.arrow": Variant(memory, memory.arrow, data),
        "durable.arrow": Variant(durable, durable.arrow, data),
        "delta.append": Variant(delta, delta.append, data),
        "materialized.rows": Variant(memory, memory.rows_materialized, data),
        "delta.append_arrow": Variant(delta, delta.append_arrow, data),
        "materialized.arrow": Variant(memory, memory.arrow_materialized, data),
        "with_reader.postgres_insert": Variant(postgres, postgres.insert_short, few, with_reader=True),
        "with_reader.memory_insert": Variant(memory, memory.insert_short, data, with_reader=True),
        "with_reader.postgres_batches": Variant(postgres, postgres.batches_short, some, with_reader=True),
        "with_reader.memory_batches": Variant(memory, memory.batches_short, data, with_reader=True),
    }


def rates_of_a_round(postgres: Postgres, sessions: SparkSessions, data: Data, scale: str) -> dict[str, float]:
    """Rows per second of every variant, in a new warehouse."""
    postgres.write_file(data)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        warehouse = stack.enter_context(open_warehouse(folder / "warehouse", TABLES))
        unused = iter(TABLES)
        memory = stack.enter_context(Producer(warehouse, unused))
        durable = stack.enter_context(Producer(warehouse, unused, durable=True))
        delta = Delta(folder / "delta", sessions.query)
        chosen = variants(postgres, delta, memory, durable, data, scale)
        found = in_turns({name: partial(_rate, name, variant) for name, variant in chosen.items()}, 1)
        return {name: rate for name, (rate,) in found.items()}


def _rate(name: str, variant: Variant) -> float:
    rate = variant.data.count / variant.seconds()
    say(f"  {name}: {rate:,.0f} rows/s")
    return rate


def load_figures(rounds: Sequence[Mapping[str, float]]) -> dict[str, object]:
    """Ratios within rounds, and every variant's rate."""
    ratios = {key: [rates[one] / rates[other] for rates in rounds] for key, (one, other) in RATIOS.items()}
    rates = {name: median([found[name] for found in rounds]) for name in rounds[0]}
    spreads = {key: f"{min(found):.3f} to {max(found):.3f}" for key, found in ratios.items()}
    return {
        **nested({key: median(found) for key, found in ratios.items()}),
        "spread": nested(spreads),
        "rows_per_second": nested(rates),
    }


def nested(values: Mapping[str, object]) -> dict[str, object]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    found: dict[str, object] = {}
    for key, value in values.items():
        group, dot, name = key.rpartition(".")
        if dot:
            inner = found.setdefault(group, {})
            assert isinstance(inner, dict)
            inner[name] = value
        else:
            found[key] = value
    return found


def scan_figures(warehouse: Warehouse, data: Data, scans: int) -> dict[str, object]:
    """Sums over rows in the overlay and over the same rows in the table."""
    for table, materialize in {IN_TABLE: True, IN_OVERLAY: False}.items():
        with connect(warehouse, table) as connection:
            connection.cursor().insert(table, data.table)
            connection.commit(materialize=materialize)
        read(warehouse, table).require(data.sums)
        stored = DeltaTable(warehouse.location(f"{SOURCE}.{table}")).to_pyarrow_dataset().count_rows()
        if stored != (data.count if materialize else 0):
            raise SystemExit(f"{table}: {stored} rows are in the table")
    actions = {table: partial(seconds, partial(read, warehouse, table)) for table in (IN_OVERLAY, IN_TABLE)}
    in_turns(actions, WARM_UP_SCANS)
    rates = {table: data.count / median(times) for table, times in in_turns(actions, scans).items()}
    return {
        "overlay_scan_vs_table_scan": rates[IN_OVERLAY] / rates[IN_TABLE],
        "scanned_rows_per_second": rates,
    }


def main() -> None:
    scale = parse_scale(__doc__ or "")
    data = Data.of(ROWS[scale])
    rounds: list[dict[str, float]] = []
    sessions = SparkSessions(spark_settings(scale, "6g"), "headgate rite")
    try:
        with Postgres() as postgres:
            if scale != "tiny":
                say("warming up")
                rates_of_a_round(postgres, sessions, data.first(WARM_UP_ROWS), scale)
            for number in range(ROUNDS[scale]):
                say(f"round {number + 1} of {ROUNDS[scale]}")
                rounds.append(rates_of_a_round(postgres, sessions, data, scale))
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
            with open_warehouse(Path(place) / "scans", (IN_OVERLAY, IN_TABLE)) as warehouse:
                say("scans")
                scans = scan_figures(warehouse, data, SCANS[scale])
            with open_warehouse(Path(place) / "delay", ("sales",)) as warehouse:
                delay = delay_figures(warehouse, scale)
    finally:
        sessions.stop()
    results = {
        **load_figures(rounds),
        **scans,
        "delay": delay,
        "rows": {"all": data.count, "postgres_insert": INSERT_ROWS[scale], "postgres_batches": BATCHES_ROWS[scale]},
        "paper": PAPER,
    }
    publish("rite", scale, results, TARGETS)


if __name__ == "__main__":
    main()
