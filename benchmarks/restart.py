"""Restart: how soon a warehouse answers after a stop, and what a change of one flow costs while it runs.

    make bench NAME=restart SCALE=tiny|small|full

A warehouse of many flows over a table of sales is loaded, folded and given many small jobs on top; then its process stops
cleanly, or is killed. Every opening is a process of its own, on a copy of the warehouse, timed from the start of the
process to the first answer of a query that takes any snapshot.

    first_any_answer_vs_spark   that time after a clean stop, over the time of a process that starts a bare Spark session and
                                runs one trivial query
    growth_10x                  the same, over that of a warehouse with a tenth of the rows
    after_kill_vs_clean         the time after a kill, with all jobs since the fold lost from memory, over that after a clean stop
    before_vs_after             the time at commit 7b265ad after a clean stop, of a warehouse with a tenth of the rows that the same
                                commit has built, over that of the working tree; not measured at tiny, and not where the commit is
                                not known
    apply_one_of_30_s           seconds of `apply` after the definition of one flow was changed

Sides take turns; each figure is the ratio of the medians.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.compare import checked_out
from benchmarks.report import in_turns, median, parse_scale, publish, say
from benchmarks.spark import spark_settings

ROOT = Path(__file__).parent.parent
BEFORE = "7b265ad"
ROWS = {"tiny": 20_000, "small": 1_000_000, "full": 10_000_000}
"""Of the warehouse; the one that it is compared with has a tenth."""
FLOWS = {"tiny": 6, "small": 30, "full": 30}
JOBS = {"tiny": 5, "small": 300, "full": 300}
ROUNDS = {"tiny": 1, "small": 3, "full": 5}
KINDS = 6
TARGETS = {
    "first_any_answer_vs_spark": ("<=", 2.0),
    "growth_10x": ("<=", 1.3),
    "after_kill_vs_clean": ("<=", 1.5),
}


def flows(number: int) -> str:
    """Six flows of different kinds over the sales, the last one over another flow; `number` varies what they select."""
    return f"""
CREATE MATERIALIZED VIEW by_store_{number} AS
SELECT store, COUNT(*) AS lines, SUM(qty) AS qty, SUM(cents) AS cents FROM shop.sales WHERE qty > 0 GROUP BY store;
CREATE MATERIALIZED VIEW named_{number} AS
SELECT s.id, c.name AS customer, p.name AS product, s.qty FROM shop.sales s
JOIN shop.customers c ON c.customer = s.customer JOIN shop.products p ON p.product = s.product
WHERE c.region = {number} AND p.category < 5;
CREATE MATERIALIZED VIEW extremes_{number} AS
SELECT customer, MIN(cents) AS least, MAX(cents) AS most FROM shop.sales WHERE store = {number} GROUP BY customer;
CREATE MATERIALIZED VIEW categories_{number} AS
SELECT p.category, SUM(s.qty) AS qty FROM shop.sales s JOIN shop.products p ON p.product = s.product
WHERE s.store < {number} GROUP BY p.category;
CREATE MATERIALIZED VIEW dear_{number} AS
SELECT id, store, cents FROM shop.sales WHERE cents > {9_990 - number};
CREATE MATERIALIZED VIEW customers_{number} AS
SELECT customer, COUNT(*) AS lines FROM named_{number} GROUP BY customer;
"""


def project(folder: Path, scale: str) -> None:
    """The project's file and its flows, one file for every six."""
    (folder / "flows").mkdir(parents=True)
    for number in range(1, FLOWS[scale] // KINDS + 1):
        (folder / "flows" / f"flows_{number}.sql").write_text(flows(number), encoding="utf-8")
    tables = {
        "sales": {
            "columns": {
                "id": "bigint",
                "customer": "bigint",
                "product": "bigint",
                "store": "int",
                "qty": "int",
                "cents": "bigint",
            },
            "key": ["id"],
        },
        "customers": {"columns": {"customer": "bigint", "region": "int", "name": "string"}, "key": ["customer"]},
        "products": {"columns": {"product": "bigint", "category": "int", "name": "string"}, "key": ["product"]},
    }
    content = {
        "name": "restart",
        "storage": "warehouse",
        "libraries": [{"glob": {"include": "flows/**"}}],
        "spark": spark_settings(scale, "2g"),
        # Nothing but what is measured runs.
        "background": {"system_jobs": False, "idle_after": "1h", "oldest_changes": "1h"},
        "sources": {"shop": {"type": "memory", "tables": tables}},
    }
    (folder / "headgate.yml").write_text(yaml.safe_dump(content), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Side:
    """A checkout, and its warehouses as they were left by a clean stop."""

    code: Path
    folder: Path
    scale: str

    def build(self, name: str, rows: int) -> None:
        project(self.folder / name, self.scale)
        say(f"building {name}: {rows:,} rows, {FLOWS[self.scale]} flows, {JOBS[self.scale]} jobs since the fold")
        lines = self._run("build", str(self.folder / name), str(rows), str(JOBS[self.scale]))
        _require(lines[-1][1]["total"], lines[-1][1]["lines"])

    def kill(self, name: str, killed: str) -> None:
        """A copy of a warehouse whose process is killed with jobs that are not folded."""
        shutil.copytree(self.folder / name, self.folder / killed)
        self._run("kill", str(self.folder / killed), str(JOBS[self.scale]), killed=True)

    def opening(self, name: str, lines: int) -> Callable[[], float]:
        """Times the opening of a copy, which is gone afterwards; all `lines` must be there when they are asked for."""

        def measured() -> float:
            with tempfile.TemporaryDirectory(dir=self.folder) as place:
                copy = Path(place) / name
                shutil.copytree(self.folder / name, copy)
                (took, _), (_, current) = self._run("open", str(copy))
            _require(current["total"], lines)
            say(f"  {name}: {took:.1f} s")
            return took

        return measured

    def applying(self, name: str) -> float:
        """Seconds of applying one changed flow, in the warehouse itself."""
        flows = self.folder / name / "flows"
        last = flows / f"flows_{FLOWS[self.scale] // KINDS}.sql"
        first, others = last.read_text(encoding="utf-8").split(";\n", 1)
        last.write_text(others, encoding="utf-8")
        (flows / "one.sql").write_text(f"{first};\n", encoding="utf-8")
        _, _, (_, applied) = self._run("change", str(self.folder / name), str(flows / "one.sql"))
        return float(applied["seconds"])

    def spark(self) -> float:
        took, _ = self._run("spark")[0]
        say(f"  bare Spark: {took:.1f} s")
        return took

    def _run(self, *words: str, killed: bool = False) -> list[tuple[float, dict[str, Any]]]:
        """What a process tells, each line with its seconds since the start."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.code / "src"),
            "RESTART_SPARK": json.dumps(spark_settings(self.scale, "2g")),
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "benchmarks" / "restart_process.py"), *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            lines = [(time.perf_counter() - began, json.loads(line)) for line in process.stdout]
        if (process.returncode != 0) != killed or not lines:
            raise SystemExit(f"{' '.join(words)} ended with code {process.returncode}")
        return lines


def _require(total: list[dict[str, Any]], lines: int) -> None:
    if total[0]["lines"] != lines:
        raise SystemExit(f"the warehouse has {total}, not {lines} lines")


def run(scale: str) -> None:
    rows, jobs, lines = ROWS[scale], JOBS[scale], JOBS[scale] * 10
    tenth = rows // 10
    with tempfile.TemporaryDirectory(prefix="headgate-restart-") as place, ExitStack() as ends:
        here = Side(ROOT, Path(place) / "after", scale)
        here.build("clean", rows)
        here.build("tenth", tenth)
        here.kill("clean", "killed")
        actions = {
            "spark": here.spark,
            "clean": here.opening("clean", rows + lines),
            "killed": here.opening("killed", rows + 2 * lines),
            "tenth": here.opening("tenth", tenth + lines),
        }
        if scale != "tiny" and (code := _checked_out(ends)) is not None:
            before = Side(code, Path(place) / "before", scale)
            before.build("before", tenth)
            actions["before"] = before.opening("before", tenth + lines)
        say(f"{ROUNDS[scale]} rounds")
        took = {name: median(times) for name, times in in_turns(actions, ROUNDS[scale]).items()}
        figures = {
            "first_any_answer_vs_spark": took["clean"] / took["spark"],
            "growth_10x": took["clean"] / took["tenth"],
            "after_kill_vs_clean": took["killed"] / took["clean"],
            "before_vs_after": took["before"] / took["tenth"] if "before" in took else None,
            "apply_one_of_30_s": here.applying("clean"),
            "seconds": took,
            "rows": rows,
            "flows": FLOWS[scale],
            "jobs": jobs,
        }
    publish("restart", scale, figures, TARGETS)


def _checked_out(ends: ExitStack) -> Path | None:
    try:
        return ends.enter_context(checked_out(BEFORE))
    except subprocess.CalledProcessError:
        say(f"the commit {BEFORE} is not known here: nothing is compared with it")
        return None


if __name__ == "__main__":
    run(parse_scale(__doc__ or ""))
