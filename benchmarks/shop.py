"""The benchmark's shop: purchases with line items, four lookups, an item dimension with history.

The shape follows the store_sales flow of the on-demand ETL experiments (TPC-DS derived): a job is 48 purchases with
about 570 line items. *inserts* brings new purchases; of *mixed*, half are new and half change or delete old ones
at scattered keys. In a stream of jobs the same groups change in many of them: of *stream*, half bring further line items
for one of 200 purchases, of items that it has; of *updates*, half overwrite one of 200 purchases and its line items.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.capture.memory import MemorySource

PURCHASES_PER_JOB = 48
LINES_PER_JOB = 570
LINES_PER_PURCHASE = 12
ITEMS = 18_000
STREAM_POOL = 200
"""Purchases that a stream of jobs changes again and again."""
CUSTOMERS = 100_000
STORES, PROMOTIONS, DATES = 12, 300, 2_000

ITEM_FLOW = """
CREATE STREAMING TABLE item;
CREATE FLOW item_changes AS AUTO CDC INTO item FROM shop.item_s KEYS (item_id) STORED AS SCD TYPE 2;
"""

SALES_QUERY = """
SELECT p.purc_id AS ticket, i.__sk AS item_sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk,
       SUM(l.qty) AS qty, {revenue} AS revenue, COUNT(*) AS lines
FROM shop.purchases p
LEFT JOIN shop.customer c ON c.customer_id = p.customer_id
LEFT JOIN shop.store s ON s.store_id = p.store_id
LEFT JOIN shop.promotion m ON m.promotion_id = p.promotion_id
LEFT JOIN shop.dates d ON d.sold_on = p.sold_on
JOIN shop.lineitems l ON l.purc_id = p.purc_id
JOIN item FOR SYSTEM_TIME AS OF l.__commit_at i ON i.item_id = l.item_id
GROUP BY p.purc_id, i.__sk, c.customer_sk, s.store_sk, m.promotion_sk, d.date_sk
"""


def project(
    storage: Path, flows: Path, key_type: str, spark: dict[str, str], revenue: str = "SUM(l.qty * l.price)"
) -> dict[str, object]:
    """The project of the shop; purchases are known by a key of the given type."""
    flows.mkdir(parents=True, exist_ok=True)
    text = f"{ITEM_FLOW}\nCREATE MATERIALIZED VIEW store_sales AS{SALES_QUERY.format(revenue=revenue)};\n"
    (flows / "store_sales.sql").write_text(text, encoding="utf-8")
    tables: dict[str, dict[str, object]] = {
        "purchases": {
            "columns": {
                "purc_id": key_type,
                "customer_id": "bigint",
                "store_id": "int",
                "promotion_id": "int",
                "sold_on": "int",
            },
            "key": ["purc_id"],
        },
        "lineitems": {
            "columns": {
                "purc_id": key_type,
                "line": "int",
                "item_id": "bigint",
                "qty": "int",
                "price": "decimal(7,2)",
            },
            "key": ["purc_id", "line"],
        },
        "item_s": {"columns": {"item_id": "bigint", "name": "string", "category": "string"}, "key": ["item_id"]},
        "customer": {
            "columns": {"customer_id": "bigint", "customer_sk": "bigint", "name": "string"},
            "key": ["customer_id"],
        },
        "store": {"columns": {"store_id": "int", "store_sk": "bigint", "name": "string"}, "key": ["store_id"]},
        "promotion": {"columns": {"promotion_id": "int", "promotion_sk": "bigint"}, "key": ["promotion_id"]},
        "dates": {"columns": {"sold_on": "int", "date_sk": "bigint"}, "key": ["sold_on"]},
    }
    return {
        "name": "shop",
        "storage": str(storage),
        "libraries": [{"glob": {"include": f"{flows}/**"}}],
        "spark": spark,
        "retention": {"jobs": 3},
        # Nothing but what is measured runs.
        "background": {"system_jobs": False, "idle_after": "1h", "oldest_changes": "1h"},
        "sources": {"shop": {"type": "memory", "tables": tables}},
    }


@dataclass
class Shop:
    """Makes the shop's data; everything follows from the seed."""

    lines: int
    uuid_keys: bool = False
    seed: int = 1
    next_number: int = 0
    _random: np.random.Generator = field(init=False)
    _gone: set[int] = field(default_factory=set)
    _next_line: int = LINES_PER_PURCHASE

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self.purchases = self.lines // LINES_PER_PURCHASE
        self._pool = min(STREAM_POOL, self.purchases // 4)

    def key(self, numbers: np.ndarray) -> pa.Array:
        """Keys of purchases, scattered over the key space: a bijection of the number, or a UUID."""
        if self.uuid_keys:
            return pa.array([str(uuid.UUID(int=_scatter128(int(number)))) for number in numbers])
        return pa.array(_scatter(numbers.astype(np.uint64)).astype(np.int64))

    def load(self, source: MemorySource, chunk: int = 40_000) -> None:
        """The initial load, one transaction."""
        with source.transaction(initial=True) as transaction:
            items = np.arange(ITEMS)
            transaction.insert_many("item_s", _items(items, 0))
            for name, table in _lookups().items():
                transaction.insert_many(name, table)
            for start in range(0, self.purchases, chunk):
                numbers = np.arange(start, min(start + chunk, self.purchases))
                transaction.insert_many("purchases", self.purchase_rows(numbers))
                transaction.insert_many("lineitems", self.line_rows(numbers, LINES_PER_PURCHASE))
        self.next_number = self.purchases

    def purchase_rows(self, numbers: np.ndarray) -> pa.Table:
        count = len(numbers)
        return pa.table(
            {
                "purc_id": self.key(numbers),
                "customer_id": self._random.integers(0, CUSTOMERS, count),
                "store_id": self._random.integers(0, STORES, count).astype(np.int32),
                "promotion_id": self._random.integers(0, PROMOTIONS, count).astype(np.int32),
                "sold_on": self._random.integers(0, DATES, count).astype(np.int32),
            }
        )

    def line_rows(self, numbers: np.ndarray, per_purchase: int) -> pa.Table:
        count = len(numbers) * per_purchase
        keys = self.key(numbers)
        cents = self._random.integers(1, 99_999, count)
        return pa.table(
            {
                "purc_id": keys.take(pa.array(np.repeat(np.arange(len(numbers)), per_purchase))),
                "line": np.tile(np.arange(per_purchase, dtype=np.int32), len(numbers)),
                "item_id": self._random.integers(0, ITEMS, count),
                "qty": self._random.integers(1, 10, count).astype(np.int32),
                "price": _decimals(cents),
            }
        )

    def old_numbers(self, count: int) -> np.ndarray:
        """Purchases that are there, none twice in the benchmark's life."""
        chosen: list[int] = []
        while len(chosen) < count:
            number = int(self._random.integers(self._pool, self.purchases))
            if number not in self._gone:
                self._gone.add(number)
                chosen.append(number)
        return np.array(chosen)

    def new_numbers(self, count: int) -> np.ndarray:
        numbers = np.arange(self.next_number, self.next_number + count)
        self.next_number += count
        return numbers

    def commit_job(self, source: MemorySource, kind: str) -> int:
        """The transactions of one job: 48 purchases with their line items, and three items renamed; gives the rows."""
        fresh = PURCHASES_PER_JOB if kind == "inserts" else PURCHASES_PER_JOB // 2
        rows = 0
        with source.transaction() as transaction:
            transaction.insert_many("item_s", _items(self._random.choice(ITEMS, 3, replace=False), self.next_number))
            rows += 3
        for numbers in np.array_split(self.new_numbers(fresh), 4):
            rows += self._set(source, numbers)
        if kind in ("stream", "updates"):
            pool = self._random.choice(self._pool, PURCHASES_PER_JOB - fresh, replace=False)
            for numbers in np.array_split(pool, 4):
                rows += self._set(source, numbers) if kind == "updates" else self._add_lines(source, numbers)
        if kind == "mixed":
            old = self.old_numbers(PURCHASES_PER_JOB - fresh)
            for numbers in np.array_split(old[: len(old) // 2], 2):
                rows += self._set(source, numbers)
            for numbers in np.array_split(old[len(old) // 2 :], 2):
                rows += self._delete(source, numbers)
        return rows

    def commit_change(self, source: MemorySource, lines: int, chunk: int = 20_000) -> None:
        """One transaction of about so many changed line items: half are of new purchases, the rest is overwritten or deleted.

        A purchase may be overwritten again and again; one that is deleted is gone for good.
        """
        purchases = max(4, lines // LINES_PER_PURCHASE)
        there = np.setdiff1d(np.arange(self._pool, self.next_number), np.array(sorted(self._gone), dtype=np.int64))
        fresh = self.new_numbers(purchases // 2)
        old = self._random.choice(there, purchases - len(fresh), replace=False)
        deleted = old[: len(old) // 2]
        self._gone.update(deleted.tolist())
        with source.transaction() as transaction:
            written = np.concatenate([fresh, old[len(old) // 2 :]])
            for numbers in np.array_split(written, -(-len(written) // chunk)):
                transaction.insert_many("purchases", self.purchase_rows(numbers))
                transaction.insert_many("lineitems", self.line_rows(numbers, LINES_PER_PURCHASE))
            for numbers in np.array_split(deleted, -(-len(deleted) // chunk)):
                transaction.delete_many("purchases", pa.table({"purc_id": self.key(numbers)}))
                gone = self.line_rows(numbers, LINES_PER_PURCHASE).select(["purc_id", "line"])
                transaction.delete_many("lineitems", gone)

    def _set(self, source: MemorySource, numbers: np.ndarray) -> int:
        with source.transaction() as transaction:
            lines = self.line_rows(numbers, LINES_PER_PURCHASE)
            transaction.insert_many("purchases", self.purchase_rows(numbers))
            transaction.insert_many("lineitems", lines)
        return len(numbers) + int(lines.num_rows)

    def _add_lines(self, source: MemorySource, numbers: np.ndarray) -> int:
        """Further line items of purchases, always of the same items."""
        lines = self.line_rows(numbers, LINES_PER_PURCHASE)
        places = np.tile(np.arange(LINES_PER_PURCHASE), len(numbers))
        items = (np.repeat(numbers, LINES_PER_PURCHASE) * LINES_PER_PURCHASE + places) % ITEMS
        lines = lines.set_column(1, "line", pa.array((places + self._next_line).astype(np.int32)))
        lines = lines.set_column(2, "item_id", pa.array(items))
        self._next_line += LINES_PER_PURCHASE
        with source.transaction() as transaction:
            transaction.insert_many("lineitems", lines)
        return int(lines.num_rows)

    def _delete(self, source: MemorySource, numbers: np.ndarray) -> int:
        with source.transaction() as transaction:
            lines = self.line_rows(numbers, LINES_PER_PURCHASE).select(["purc_id", "line"])
            transaction.delete_many("purchases", pa.table({"purc_id": self.key(numbers)}))
            transaction.delete_many("lineitems", lines)
        return len(numbers) + int(lines.num_rows)


def _items(numbers: np.ndarray, version: int) -> pa.Table:
    return pa.table(
        {
            "item_id": numbers.astype(np.int64),
            "name": [f"item {number} v{version}" for number in numbers.tolist()],
            "category": [f"category {number % 40}" for number in numbers.tolist()],
        }
    )


def _lookups() -> dict[str, pa.Table]:
    def small(key: str, count: int, surrogate: str, first: int) -> dict[str, object]:
        return {key: np.arange(count, dtype=np.int32), surrogate: np.arange(count) + first}

    customers = np.arange(CUSTOMERS)
    return {
        "customer": pa.table(
            {
                "customer_id": customers,
                "customer_sk": customers + 1_000_000,
                "name": [f"customer {number}" for number in range(CUSTOMERS)],
            }
        ),
        "store": pa.table(
            {**small("store_id", STORES, "store_sk", 100), "name": [f"store {number}" for number in range(STORES)]}
        ),
        "promotion": pa.table(small("promotion_id", PROMOTIONS, "promotion_sk", 1_000)),
        "dates": pa.table(small("sold_on", DATES, "date_sk", 2_450_000)),
    }


def _scatter(numbers: np.ndarray) -> np.ndarray:
    """A bijection on 62 bits, so that neighbours lie far apart."""
    mask = np.uint64((1 << 62) - 1)
    value = (numbers * np.uint64(0x9E3779B97F4A7C15)) & mask
    value ^= value >> np.uint64(31)
    return (value * np.uint64(0xBF58476D1CE4E5B9)) & mask


def _scatter128(number: int) -> int:
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 0x1234567) % (1 << 128)


def _decimals(cents: np.ndarray) -> pa.Array:
    """Exact decimal(7,2) values from whole cents."""
    raw = np.zeros((len(cents), 2), dtype=np.int64)
    raw[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(7, 2), len(cents), [None, pa.py_buffer(raw.tobytes())])
