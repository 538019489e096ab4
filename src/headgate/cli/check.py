"""`headgate check`: what a project would do, and everything that is wrong with it; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headgate.cli.exits import FAILED, failure_lines
from headgate.cli.options import Place, json_option, project_option, write_json
from headgate.cli.terminal import tell
from headgate.cli.waiting import waiting
from headgate.measures import count_text

if TYPE_CHECKING:
    from headgate.cli.checking import CheckedProject


@click.command("check")
@json_option
@project_option
def check_command(place: Place, as_json: bool) -> None:
    """Check the project and print its graph.

    Looks at the file, the flows, connections and privileges. Prints every source and flow, what each flow reads, and whether it is kept
    incrementally and why not. All mistakes are told, not only the first.
    Nothing is written, neither here nor at a source. `dry-run` is the same command.

    \b
    headgate check
    headgate check --project shop --json
    """
    file = place.file
    with waiting(f"checking {file}"):
        from headgate.cli.checking import check_project

        report = check_project(file)
    if as_json:
        write_json(_json(report))
    else:
        for line in report_lines(report):
            tell(line)
    if report.problems:
        raise click.exceptions.Exit(FAILED)


def report_lines(report: CheckedProject) -> Iterator[str]:
    """The report for people."""
    if report.name is not None:
        yield f"project {report.name}"
    for source in report.sources:
        yield f"  source {source.name}: {source.kind}"
        for table, columns in source.tables.items():
            yield f"    {source.name}.{table} ({', '.join(columns) or 'could not be looked at'})"
    for flow in report.flows:
        yield f"  flow {flow.name} ← {', '.join(flow.reads) or 'nothing'}: {flow.how}  [{flow.where}]"
        yield from (f"    {reason}" for reason in flow.reasons)
    for warning in report.warnings:
        yield f"warning: {warning}"
    for problem in report.problems:
        error, *hint = failure_lines(problem)
        yield from (error, *(f"  {line}" for line in hint))
    yield f"{count_text(len(report.problems), 'problem')} found" if report.problems else "ok: nothing is wrong"


def _json(report: CheckedProject) -> dict[str, object]:
    return {
        "project": report.name,
        "sources": [asdict(source) for source in report.sources],
        "flows": [asdict(flow) for flow in report.flows],
        "warnings": list(report.warnings),
        "problems": [
            {
                "kind": type(each).__name__,
                "where": None if each.where is None else str(each.where),
                "what": each.what,
                "hint": each.hint,
            }
            for each in report.problems
        ],
    }
