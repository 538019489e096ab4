"""The files of a new project, as texts; this one runs without anything else."""

from __future__ import annotations

import re

STORAGE = "warehouse"
"""The folder of the project that becomes its storage."""

HEAD = """\
# A headgate project: where data comes from, and how fresh answers are. `headgate check` tells what is wrong with it.
name: {name}
storage: ./warehouse              # everything that headgate keeps; its tables are Delta tables, readable by any client
libraries:
  - glob: {{include: flows/**}}     # .sql files: the tables that are kept up to date
freshness:                        # what a query gets that does not say
  max_staleness: 0s               # all that was committed before it; 10m would allow ten minutes
  # deadline: 30s                 # how long it waits for that at most
"""

_SOURCE = """
sources:
  shop:
    type: producer                # filled by programs such as sell.py, through headgate.connect; another type is postgres
    tables:
      sales:
        columns: {id: bigint, item: string, price: "decimal(10,2)", sold_at: timestamp}
        key: [id]
"""

_FLOW = """\
-- Kept up to date from the changes of shop.sales: a new sale touches one group, not the table.
CREATE MATERIALIZED VIEW revenue AS
SELECT item, COUNT(*) AS sales, SUM(price) AS total
FROM shop.sales
GROUP BY item;
"""

_PROGRAM = """\
\"\"\"Sells a few things. Run it beside `headgate run`, as often as you like, and ask what became of it.\"\"\"

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import headgate

with headgate.connect(Path(__file__).parent, tables=["sales"]) as connection:
    cursor = connection.cursor()
    cursor.execute("SELECT MAX(id) FROM sales")
    last = cursor.fetchone()[0] or 0
    sold = [
        (last + number, random.choice(["tea", "coffee", "cake"]), Decimal(random.randint(100, 900)) / 100, datetime.now(UTC))
        for number in range(1, 11)
    ]
    cursor.executemany("INSERT INTO sales (id, item, price, sold_at) VALUES (%s, %s, %s, %s)", sold)
"""

_README = """\
# {name}

    headgate check      # all mistakes of the project; writes nothing
    headgate run        # the service; its page shows how fresh every table is

In another terminal:

    {fill}headgate query "SELECT * FROM {table}"                             # everything that was committed before
    headgate query "SELECT * FROM {table} CURRENCY BOUND 10 MIN"     # ten minutes old is fine: nothing may be left to do
"""

_IGNORED = "warehouse/\n"


def project_name(text: str) -> str:
    """A project's name, made of any text."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")
    return name if name[:1].isalpha() else f"project-{name}".rstrip("-")


def project_files(name: str, config: str, flow: str, sql: str, fill: str = "") -> dict[str, str]:
    """A project with one flow; `fill` are lines of its README that give it something to do."""
    return {
        "headgate.yml": config,
        f"flows/{flow}.sql": sql,
        "README.md": _README.format(name=name, table=flow, fill=fill),
        ".gitignore": _IGNORED,
    }


def starter(name: str) -> dict[str, str]:
    """A project that runs as it is: a table, a program that fills it, and a flow over it."""
    config = HEAD.format(name=name) + _SOURCE
    fill = "python sell.py                     # sells a few things\n    "
    return {**project_files(name, config, "revenue", _FLOW, fill), "sell.py": _PROGRAM}
