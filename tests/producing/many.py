"""A warehouse with a table for each of many producers, whose stream is an elastic queue; run as a program it is one of them.

python -m tests.producing.many FOLDER NUMBER COMMITS
"""

from __future__ import annotations

import sys
from pathlib import Path

import headgate
from tests.scheduling.bank import SPARK

PRODUCERS = 8
ROWS = 3
TOTAL = " UNION ALL ".join(f"SELECT {n} AS p, k, v FROM etl.t{n}" for n in range(PRODUCERS))


def project(folder: Path, **settings: object) -> dict[str, object]:
    (folder / "flows").mkdir(parents=True, exist_ok=True)
    (folder / "flows" / "many.sql").write_text(
        f"CREATE MATERIALIZED VIEW totals AS SELECT p, COUNT(*) AS n, SUM(v) AS v FROM ({TOTAL}) GROUP BY p;"
    )
    table = {"columns": {"k": "bigint", "v": "bigint"}, "key": ["k"]}
    return {
        "name": "many",
        "storage": str(folder / "warehouse"),
        "libraries": [{"glob": {"include": f"{folder}/flows/**"}}],
        "spark": SPARK,
        "sources": {
            "etl": {"type": "producer", "stream": "elastic", "tables": {f"t{n}": table for n in range(PRODUCERS)}}
        },
        "background": {"system_jobs": False},
        **settings,
    }


def produce(folder: Path, number: int, commits: int) -> None:
    """Commits rows, and says so each time; the last line comes once the connection is closed."""
    table = f"t{number}"
    with headgate.connect(project(folder), tables=[table], paramstyle="qmark") as connection:
        cursor = connection.cursor()
        for commit in range(commits):
            cursor.executemany(
                f"INSERT INTO {table} VALUES (?, ?)", [(ROWS * commit + row, commit) for row in range(ROWS)]
            )
            connection.commit()
            print(commit + 1, flush=True)  # noqa: T201
    print("closed", flush=True)  # noqa: T201


if __name__ == "__main__":
    produce(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
