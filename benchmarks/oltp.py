"""An OLTP database like TPC-C's on a private server, pgbench to load it, and what the server's processes cost.

New orders (45 %), payments (43 %) and order status (12 %) over warehouse, district, customer, stock, orders and order_line. Every
write sets `updated_at`, so that the same database can be captured by log, by trigger and by timestamp. Unlike TPC-B's
few hot rows, its writers hardly wait for each other: what capture costs shows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg import sql

from headgate.capture.postgres.private_server import PostgresServer

TABLES = ("warehouse", "district", "customer", "stock", "orders", "order_line")
CLIENTS = 4
DISTRICTS, CUSTOMERS, ITEMS = 10, 100, 1000
_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
}
_SCHEMA = """
CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name text NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(14,2) NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE district (w_id int, d_id int, d_tax numeric(4,4) NOT NULL, d_ytd numeric(14,2) NOT NULL, d_next_o_id int NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (w_id, d_id));
CREATE TABLE customer (w_id int, d_id int, c_id int, c_last text NOT NULL, c_discount numeric(4,4) NOT NULL,
  c_balance numeric(14,2) NOT NULL, c_payments int NOT NULL, c_data text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (w_id, d_id, c_id));
CREATE TABLE stock (w_id int, i_id int, s_quantity int NOT NULL, s_ytd int NOT NULL, s_data text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (w_id, i_id));
CREATE TABLE orders (w_id int, d_id int, o_id int, c_id int NOT NULL, o_entry_at timestamptz NOT NULL DEFAULT now(),
  o_lines int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (w_id, d_id, o_id));
CREATE INDEX ON orders (w_id, d_id, c_id, o_id);
CREATE TABLE order_line (w_id int, d_id int, o_id int, l_number int, i_id int NOT NULL, l_quantity int NOT NULL,
  l_amount numeric(8,2) NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (w_id, d_id, o_id, l_number));
ALTER TABLE warehouse SET (fillfactor = 50);
ALTER TABLE district SET (fillfactor = 50);
"""
_FILL = """
INSERT INTO warehouse SELECT w, 'warehouse ' || w, 0.08, 0 FROM generate_series(1, {warehouses}) w;
INSERT INTO district SELECT w, d, 0.05, 0, 1 FROM generate_series(1, {warehouses}) w, generate_series(1, {districts}) d;
INSERT INTO customer SELECT w, d, c, 'name ' || c % 50, 0.05, -10, 1, repeat(md5(c::text), 8)
  FROM generate_series(1, {warehouses}) w, generate_series(1, {districts}) d, generate_series(1, {customers}) c;
INSERT INTO stock SELECT w, i, 100, 0, md5(i::text) FROM generate_series(1, {warehouses}) w, generate_series(1, {items}) i;
"""
_RESET = """
TRUNCATE orders, order_line;
UPDATE district SET d_next_o_id = 1;
VACUUM (ANALYZE) warehouse; VACUUM (ANALYZE) district; VACUUM (ANALYZE) customer; VACUUM (ANALYZE) stock;
CHECKPOINT
"""
_PLACE = r"""
\set w random(1, :warehouses)
\set d random(1, :districts)
\set c random(1, :customers)
"""
_NEW_ORDER = (
    _PLACE
    + r"""
\set i1 random(1, :items)
\set i2 random(1, :items)
\set i3 random(1, :items)
\set i4 random(1, :items)
\set i5 random(1, :items)
\set q random(1, 10)
BEGIN;
SELECT w_tax, c_discount FROM warehouse JOIN customer USING (w_id) WHERE w_id = :w AND d_id = :d AND c_id = :c;
UPDATE district SET d_next_o_id = d_next_o_id + 1, updated_at = now() WHERE w_id = :w AND d_id = :d RETURNING d_next_o_id AS o \gset
INSERT INTO orders (w_id, d_id, o_id, c_id, o_lines) VALUES (:w, :d, :o, :c, 5);
UPDATE stock SET s_quantity = CASE WHEN s_quantity > 20 THEN s_quantity - :q ELSE 100 END, s_ytd = s_ytd + :q, updated_at = now()
  WHERE w_id = :w AND i_id IN (:i1, :i2, :i3, :i4, :i5);
INSERT INTO order_line (w_id, d_id, o_id, l_number, i_id, l_quantity, l_amount) VALUES
  (:w, :d, :o, 1, :i1, :q, 9.5), (:w, :d, :o, 2, :i2, :q, 8.5), (:w, :d, :o, 3, :i3, :q, 7.5), (:w, :d, :o, 4, :i4, :q, 6.5),
  (:w, :d, :o, 5, :i5, :q, 5.5);
COMMIT;
"""
)
_PAYMENT = (
    _PLACE
    + r"""
\set amount random(1, 5000)
BEGIN;
UPDATE customer SET c_balance = c_balance - :amount, c_payments = c_payments + 1, updated_at = now()
  WHERE w_id = :w AND d_id = :d AND c_id = :c;
UPDATE district SET d_ytd = d_ytd + :amount, updated_at = now() WHERE w_id = :w AND d_id = :d;
UPDATE warehouse SET w_ytd = w_ytd + :amount, updated_at = now() WHERE w_id = :w;
COMMIT;
"""
)
_ORDER_STATUS = (
    _PLACE
    + r"""
SELECT c_last, c_balance FROM customer WHERE w_id = :w AND d_id = :d AND c_id = :c;
SELECT o.o_id, l.i_id, l.l_quantity FROM order_line l JOIN
  (SELECT w_id, d_id, o_id FROM orders WHERE w_id = :w AND d_id = :d AND c_id = :c ORDER BY o_id DESC LIMIT 1) o USING (w_id, d_id, o_id);
"""
)
_SCRIPTS = {"new_order": (_NEW_ORDER, 45), "payment": (_PAYMENT, 43), "order_status": (_ORDER_STATUS, 12)}


@dataclass(frozen=True, eq=False)
class Transactions:
    """Finished transactions, in no order: when each ended (seconds of the epoch) and what it took since it was due."""

    ended_at: npt.NDArray[np.float64]
    milliseconds: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ended_at)

    def between(self, start: float, end: float) -> Transactions:
        chosen = (self.ended_at >= start) & (self.ended_at < end)
        return Transactions(self.ended_at[chosen], self.milliseconds[chosen])

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.milliseconds, percent))


class Load:
    """A running pgbench; with a rate, transactions come at random moments and wait for a client if need be."""

    def __init__(self, oltp: Oltp, database: str, seconds: float, *, rate: float | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-pgbench-")
        place = Path(self._folder.name)
        command = [
            *(str(oltp.server.binaries / "pgbench"), "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1"),
            *("-T", str(max(1, round(seconds))), "--max-tries", "10"),
            *("-l", "--log-prefix", str(place / "log")),
            *("-h", "127.0.0.1", "-p", str(oltp.server.port), "-U", "postgres"),
            *(f"-Dwarehouses={oltp.warehouses}", f"-Ddistricts={DISTRICTS}", f"-Dcustomers={CUSTOMERS}"),
            f"-Ditems={ITEMS}",
        ]
        if rate is not None:
            command += ["-R", f"{rate:.1f}"]
        for name, (text, weight) in _SCRIPTS.items():
            file = place / name
            file.write_text(text, encoding="utf-8")
            command += ["-f", f"{file}@{weight}"]
        self._process = subprocess.Popen([*command, database], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def wait(self, timeout: float = 3600) -> Transactions:
        """What it did, once its time is over."""
        try:
            _, said = self._process.communicate(timeout=timeout)
            if self._process.returncode:
                raise SystemExit(f"pgbench failed: {said.decode(errors='replace').strip()[-500:]}")
            return _read_logs(sorted(Path(self._folder.name).glob("log.*")))
        finally:
            self.close()

    def stop(self) -> None:
        """Ends it before its time, in order: this signal is how pgbench learns that its time is over."""
        self._process.send_signal(signal.SIGALRM)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


class Oltp:
    """A private server and its databases."""

    def __init__(self, warehouses: int) -> None:
        self.warehouses = warehouses
        self.server = PostgresServer(settings=_SETTINGS, fsync=True)
        self.server.start()

    def __enter__(self) -> Oltp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.close()

    def create(self, database: str) -> str:
        """Makes and fills a database; returns its dsn."""
        fill = sql.SQL(_FILL).format(warehouses=self.warehouses, districts=DISTRICTS, customers=CUSTOMERS, items=ITEMS)
        with self.server.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        with self.server.connect(database) as connection:
            connection.execute(_SCHEMA)
            connection.execute(fill)
        self.reset(database)
        return self.server.dsn_of(database)

    def drop(self, database: str) -> None:
        with self.server.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))

    def reset(self, database: str) -> None:
        """Without orders, cleaned up and written out: each measurement begins alike."""
        with self.server.connect(database) as connection:
            for statement in _RESET.split(";"):
                connection.execute(statement.strip().encode())

    def index_times(self, database: str, present: bool) -> None:
        """Makes or drops the indexes that capture by timestamp asks for."""
        with self.server.connect(database) as connection:
            for table in TABLES:
                index = sql.Identifier(f"{table}_updated_at")
                if present:
                    connection.execute(
                        sql.SQL("CREATE INDEX {} ON {} (updated_at)").format(index, sql.Identifier(table))
                    )
                else:
                    connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(index))

    def run(self, database: str, seconds: float, *, rate: float | None = None) -> Transactions:
        return Load(self, database, seconds, rate=rate).wait()

    def cpu_seconds(self) -> float:
        """What all processes of the server have used so far, those that ended included."""
        postmaster = int((self.server.data / "postmaster.pid").read_text().split()[0])
        found = {pid: stat for pid in _processes() if (stat := _stat(pid))}
        used = sum(found[postmaster][2:6])
        return used + sum(sum(stat[2:4]) for stat in found.values() if stat[1] == postmaster)

    def walsender_seconds(self) -> float:
        """What the running walsenders have used so far."""
        with self.server.connect() as connection:
            pids = [int(row[0]) for row in connection.execute("SELECT pid FROM pg_stat_replication").fetchall()]
        return sum(sum(stat[2:4]) for pid in pids if (stat := _stat(pid)))


def _read_logs(files: Sequence[Path]) -> Transactions:
    """Columns: client, number, microseconds, script, second and microsecond of the end, and more."""
    parsing = pyarrow.csv.ParseOptions(delimiter=" ")
    reading = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    converting = pyarrow.csv.ConvertOptions(column_types={"f2": pa.string()}, include_columns=["f2", "f4", "f5"])
    tables = [pyarrow.csv.read_csv(file, reading, parsing, converting) for file in files]
    table = pa.concat_tables(tables)
    # Others failed or were skipped.
    table = table.filter(pc.utf8_is_digit(table.column("f2")))
    took = table.column("f2").cast(pa.int64()).to_numpy()
    return Transactions(table.column("f4").to_numpy() + table.column("f5").to_numpy() / 1e6, took / 1e3)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> tuple[int, int, float, float, float, float] | None:
    """A process's id, its parent's, and its CPU seconds: user, system, and those of its ended children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    user, system, children_user, children_system = (int(field) / tick for field in fields[11:15])
    return pid, int(fields[1]), user, system, children_user, children_system
