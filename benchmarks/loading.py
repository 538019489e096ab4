"""Loading: a first load of links like LinkBench's, while queries ask for the links of an id.

    make bench NAME=loading SCALE=tiny|small|full
    python -m benchmarks.loading --parts postgres | files

`benchmarks.loading_postgres` loads from PostgreSQL while writers write, `benchmarks.loading_files` from CSV files behind a slow network.
"""

from __future__ import annotations

import argparse

from benchmarks import loading_files, loading_postgres
from benchmarks.report import SCALES, publish

MEASURES = {"postgres": loading_postgres.measure, "files": loading_files.measure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--parts", nargs="+", choices=MEASURES, default=list(MEASURES))
    options = parser.parse_args()
    results = {part: MEASURES[part](options.scale) for part in options.parts}
    publish("loading", options.scale, results, {**loading_postgres.TARGETS, **loading_files.TARGETS})


if __name__ == "__main__":
    main()
