"""A warehouse with a table for each of many producers, whose stream is an elastic queue; run as a program it is one of them.

python -m tests.producing.many FOLDER NUMBER COMMITS [PAUSE]      waits for a line after so many commits
python -m tests.producing.many FOLDER NUMBER part TRANSACTION     puts the part of that number
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


def produce(folder: Path, number: int, commits: int, pause: int = 0) -> None:
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
            if commit + 1 == pause:
                sys.stdin.readline()
    print("closed", flush=True)  # noqa: T201


def put(folder: Path, number: int, transaction: str) -> None:
    """Puts rows of t0 as a part; key 0 is in each of the first parts."""
    with headgate.connect(project(folder), tables=["t0"], paramstyle="qmark", part=(transaction, number)) as connection:
        connection.cursor().executemany(
            "INSERT INTO t0 VALUES (?, ?)", [*[(0, number)] * (number < PRODUCERS), (number + 1, number)]
        )


if __name__ == "__main__":
    if sys.argv[3] == "part":
        put(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4])
    else:
        produce(Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:]))
