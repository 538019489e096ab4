"""Spark Declarative Pipelines as a side: a materialized view over the plain copies, refreshed by a run of the pipeline.

A run is a process of its own with its own Spark, as `spark-pipelines run` starts it; it computes the view from all rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from benchmarks.peers_sides import SALES, SMALL, Copies, Row, plain_answer

RUN_SECONDS = 900
SPEC = """
name: peers
storage: file://{folder}/storage
libraries: [{{glob: {{include: transformations/**}}}}]
"""


class Pipelines:
    def __init__(self, copies: Copies, session: SparkSession, folder: Path) -> None:
        self._copies = copies
        self._session = session
        self._folder = folder
        (folder / "transformations").mkdir(parents=True)
        (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder), encoding="utf-8")
        names = ("purchases", "lineitems", "item", *SMALL)
        query = SALES.format(**{name: f"parquet.`{folder}/inputs/{name}`" for name in names})
        view = f"CREATE MATERIALIZED VIEW sales AS {query};\n"
        (folder / "transformations" / "sales.sql").write_text(view, encoding="utf-8")
        self._names = names

    def link(self) -> None:
        """Makes the copies' files the pipeline's inputs."""
        for name in self._names:
            place = self._folder / "inputs" / name
            place.mkdir(parents=True, exist_ok=True)
            for old in place.iterdir():
                old.unlink()
            for file in self._copies.files(name):
                path = file.removeprefix("file://")
                (place / Path(path).name).symlink_to(path)

    def answer(self) -> list[Row]:
        home = str(Path(pyspark.__file__).parent)
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        done = subprocess.run(
            [f"{home}/bin/spark-pipelines", "run", "--spec", "spark-pipeline.yml"],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        if "Run is COMPLETED" not in done.stdout + done.stderr:
            raise SystemExit(f"the pipeline did not run:\n{(done.stdout + done.stderr)[-2000:]}")
        return plain_answer(self._session, [str(self._folder / "spark-warehouse" / "sales")])


def missing() -> str | None:
    """Why Spark Declarative Pipelines cannot be run here; None when they can."""
    try:
        import pyspark.pipelines.spark_connect_pipeline  # noqa: F401
    except Exception as error:
        return f"Spark Declarative Pipelines need Spark Connect, which this environment lacks: {error}"
    return None
