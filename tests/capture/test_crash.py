"""A process killed in the middle of its commits loses no transaction that it had acknowledged, and tears none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.capture.memory import MemorySource
from tests.capture.logs import LOGS, OpenLog
from tests.capture.shop import open_shop

WRITER = """
import sys
from pathlib import Path
from tests.capture.logs import LOGS
from tests.capture.shop import items, open_shop

kind = LOGS[int(sys.argv[2])]
shop = open_shop(Path(sys.argv[1]), segment_bytes=20_000, transaction_bytes=4_000, kind=kind)
for turn in range(shop.log.end + 1, 1_000_000):
    size = 200 if turn % 7 == 0 else 5
    with shop.transaction() as transaction:
        transaction.insert_many("items", items(turn * 1000, turn * 1000 + size))
        transaction.insert("sales", {"id": turn, "line": size})
    print(transaction.position, flush=True)
"""


def committed_sizes(shop: MemorySource) -> dict[int, int]:
    """Rows of items per transaction, and a check that each is the one its position stands for."""
    found = shop.log.read("items", 0, shop.log.end)
    tables = [] if found.table is None else [found.table]
    tables += [pq.read_table(file.path) for file in found.files]
    sizes: dict[int, int] = {}
    for table in tables:
        for identity, position in zip(table["id"].to_pylist(), table["__position"].to_pylist(), strict=True):
            assert identity // 1000 == position
            sizes[position] = sizes.get(position, 0) + 1
    return sizes


@pytest.mark.parametrize("seed", range(2))
def test_every_acknowledged_transaction_survives_a_kill(open_log: OpenLog, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    acknowledged = 0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(LOGS.index(open_log))],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first, "the writer ended before its first commit"
        time.sleep(chance.uniform(0.0, 0.3))
        child.send_signal(signal.SIGKILL)
        lines = [first, *child.stdout.read().splitlines()]
        child.wait()
        acknowledged = max(int(line) for line in lines if line.strip())
        shop = open_shop(tmp_path, segment_bytes=20_000, transaction_bytes=4_000, kind=open_log)
        assert shop.log.end >= acknowledged
        sizes = committed_sizes(shop)
        assert sizes == {position: 200 if position % 7 == 0 else 5 for position in range(1, shop.log.end + 1)}
        sales = shop.log.read("sales", 0, shop.log.end).table
        assert sales is not None
        assert sales["id"].to_pylist() == list(range(1, shop.log.end + 1))
        shop.close()
    assert acknowledged > 7
