"""The quickstart is followed from its first line to its last: every command typed, every block used, every output compared."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.capture.postgres.private_server import PostgresServer
from tests.docs.markdown import ROOT, Block, blocks
from tests.docs.terminal import Terminal

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "quickstart.md"
FLOWS = "flows/revenue.sql"
"""The file to which the reader adds a flow."""
SHOWN_URL, SHOWN_SERVER, SHOWN_PORT = "http://127.0.0.1:8765", "127.0.0.1:5432", "port=5432"
SHOWN_DEADLINE = '"5s"'
"""For a machine that has nothing else to do."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server with an empty database shop."""
    with PostgresServer() as started:
        with started.connect() as connection:
            connection.execute("CREATE DATABASE shop")
        yield started


@pytest.fixture
def terminal(server: PostgresServer, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, {SHOWN_SERVER: f"127.0.0.1:{server.port}"})
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.slow
def test_the_quickstart_works_as_written(server: PostgresServer, terminal: Terminal) -> None:
    for block in blocks(pages=(PAGE,)):
        match block.language, block.kind:
            case "console", _:
                terminal.type(block)
            case "sql", "postgres":
                with server.connect("shop") as connection:
                    # The page's own text, as a reader would paste it.
                    connection.execute(block.text.encode())
            case "sql", _:
                use_flows(block, terminal.folder)
            case "yaml", _:
                compare_source(block, terminal.folder, server.port)
            case "python", _:
                assert "seconds stale" in printed(block, terminal.url)
    with server.connect("shop") as connection:
        left = connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
    assert left == (0,)


def use_flows(block: Block, folder: Path) -> None:
    """A block is what some flow file of the project has, or what the reader adds to one."""
    if not any(block.text in file.read_text(encoding="utf-8") for file in (folder / "flows").glob("*.sql")):
        with (folder / FLOWS).open("a", encoding="utf-8") as file:
            file.write(f"\n{block.text}")


def compare_source(block: Block, folder: Path, port: int) -> None:
    """What `init` proposes for a database is shown as it stands in the file; the first project is shown without its comments."""
    if SHOWN_PORT in block.text:
        proposed = (folder / "headgate.yml").read_text(encoding="utf-8")
        assert block.text.replace(SHOWN_PORT, f"port={port}") in proposed


def printed(block: Block, url: str) -> str:
    assert SHOWN_URL in block.text and SHOWN_DEADLINE in block.text
    text = block.text.replace(SHOWN_URL, url).replace(SHOWN_DEADLINE, '"10m"')
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, str(block), "exec"), {})
    return output.getvalue()
