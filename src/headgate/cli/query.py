"""`headgate query`: one query and its answer, or a shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

import click

from headgate.cli.options import Place, service_options
from headgate.cli.reaching import reach, when_open
from headgate.cli.terminal import console, show
from headgate.cli.waiting import waiting
from headgate.errors import DefiniteError, Location
from headgate.text import LONGEST_TEXT, require_text

if TYPE_CHECKING:
    from headgate.client import Reply

FORMATS = ("table", "csv", "json", "arrow", "parquet")
BINARY = ("arrow", "parquet")


@click.command("query")
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.File(encoding="utf-8"), help="Read the query from a file; - is stdin.")
@click.option("--max-staleness", metavar="AGE", help="How old the answer may be: 10m, 0s, any.")
@click.option("--deadline", metavar="TIME", help="How long the answer may take: 5s.")
@click.option("--when-stale", type=click.Choice(["fail", "serve", "wait"]), help="What to do at the deadline.")
@click.option("--job", type=click.IntRange(min=0), help="Read this snapshot, whatever its age.")
@click.option(
    "--format", "chosen", type=click.Choice(FORMATS), default=None, help="How to write rows; table by default."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to a file.")
@click.option(
    "--receipt", "with_receipt", is_flag=True, help="Write on stderr how fresh the answer is and what it cost."
)
@service_options
def query_command(
    place: Place,
    text: str | None,
    file: TextIO | None,
    max_staleness: str | None,
    deadline: str | None,
    when_stale: str | None,
    job: int | None,
    chosen: str | None,
    as_json: bool,
    output: Path | None,
    with_receipt: bool,
) -> None:
    """Answer one SELECT, as fresh as it says. Without TEXT, the query is read from stdin; on a terminal a shell opens.

    \b
    headgate query "SELECT * FROM revenue CURRENCY BOUND 10 MIN DEADLINE 5 SEC"
    headgate query -f report.sql --max-staleness 1h --format csv -o report.csv
    echo "SELECT COUNT(*) FROM revenue" | headgate query --receipt
    headgate query                      # a shell; \\? lists its commands
    """
    if as_json and chosen not in (None, "json"):
        raise click.UsageError(f"--json and --format {chosen} exclude each other")
    form = "json" if as_json else chosen or "table"
    if form in BINARY and output is None and sys.stdout.isatty():
        raise click.UsageError(f"{form} is not for a terminal: name a file with -o, or pipe it to a program")
    if text is not None and file is not None:
        raise click.UsageError("give the query as TEXT or with -f, not both")
    if text is None and file is None and sys.stdin.isatty():
        from headgate.cli.shell import Shell

        with reach(place) as client:
            Shell(client).run()
        return
    asked = text if text is not None else _read(file or sys.stdin)
    with reach(place) as client:
        ask = partial(client.sql, asked, max_staleness=max_staleness, deadline=deadline, when_stale=when_stale, job=job)
        with waiting("waiting for the answer") as line:
            reply = ask() if deadline is not None else when_open(ask, line)
        with reply, _destination(output) as stream:
            write_reply(reply, form, stream)
    if with_receipt:
        show_receipt(reply, as_json=form == "json")


def _read(stream: TextIO) -> str:
    """The query in a file; nothing is asked of the warehouse for one that can be none."""
    try:
        return require_text(stream.read(LONGEST_TEXT + 1), "the query", where=Location(stream.name))
    except UnicodeDecodeError:
        raise DefiniteError(
            "the query is not UTF-8 text", where=Location(stream.name), hint="save it as UTF-8"
        ) from None


def write_reply(reply: Reply, form: str, stream: IO[bytes]) -> None:
    """Writes the rows as they come; a table for a terminal is as wide as that."""
    from headgate.cli.formats import WRITERS, write_table

    writer = WRITERS[form]
    if form == "table" and stream.isatty():
        writer = partial(write_table, width=console().width)
    writer(reply.schema, reply.batches(), stream)
    stream.flush()


def show_receipt(reply: Reply, *, as_json: bool) -> None:
    """Tells on stderr what the answer was promised and what it cost."""
    import json

    from headgate.cli.receipts import receipt_table

    if as_json:
        click.echo(json.dumps(reply.receipt), err=True)
    elif reply.receipt is None:
        click.echo("no receipt: the job was named, or nothing was read", err=True)
    else:
        show(receipt_table(reply.receipt), err=True)


@contextmanager
def _destination(output: Path | None) -> Iterator[IO[bytes]]:
    """Where rows go. A file appears once it is whole; devices and pipes are written as they are."""
    if output is None:
        yield sys.stdout.buffer
        return
    if output.exists() and not output.is_file():
        with output.open("wb") as stream:
            yield stream
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
