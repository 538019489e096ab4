"""The project that docs/sql.md describes: its file and its flows are blocks of that page."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headgate.cli.checking import check_project
from headgate.cli.flow_check import CheckedFlow
from tests.docs.markdown import ROOT, Block, blocks

SQL_PAGE = ROOT / "docs" / "sql.md"


def is_flows(block: Block) -> bool:
    """Whether a block of SQL holds statements of a flow file rather than queries."""
    lines = (line for line in block.text.splitlines() if line.strip() and not line.startswith("--"))
    return next(lines).upper().startswith("CREATE")


def write_project(folder: Path) -> Path:
    """Writes the project and gives its file."""
    (config,) = blocks("yaml", pages=(SQL_PAGE,))
    (folder / "flows").mkdir(parents=True)
    for block in filter(is_flows, blocks("sql", pages=(SQL_PAGE,))):
        (folder / "flows" / f"line_{block.line}.sql").write_text(block.text, encoding="utf-8")
    file = folder / "headgate.yml"
    file.write_text(config.text, encoding="utf-8")
    return file


def checked_flows() -> tuple[CheckedFlow, ...]:
    """The page's flows, as `headgate check` judges them without Spark."""
    with tempfile.TemporaryDirectory() as folder:
        report = check_project(write_project(Path(folder) / "shop"), with_spark=False)
    assert report.problems == ()
    return report.flows
