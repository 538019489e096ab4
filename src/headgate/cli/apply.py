"""`headgate apply`: takes changed flow files and settings while the service runs, after a look at what that does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from headgate.cli.exits import FAILED
from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import address_of, open_here, reach, say_that_none_runs
from headgate.cli.terminal import tell
from headgate.cli.texts import shown
from headgate.cli.waiting import waiting
from headgate.measures import count_text, size_text

_SIGNS = {"new": "+", "changed": "~", "removed": "-"}


@click.command("apply")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--diff", is_flag=True, help="Count the rows that would change; takes about as long as building the flows."
)
@json_option
@service_options
def apply_command(place: Place, yes: bool, dry_run: bool, diff: bool, as_json: bool) -> None:
    """Take the project's files as they are now, while the service runs.

    Shows first which flows are new, changed or removed, from how many rows they are built, and which settings change; then asks. Only what
    changed, and what reads it, is built; everything else goes on answering. A mistake in a file changes nothing, and all mistakes are told.
    SIGHUP has a running service do the same without being asked. `--dry-run` ends with code 0, whether there is something to do or not.

    \b
    headgate apply
    headgate apply --dry-run --diff
    headgate apply --yes
    """
    if address_of(place) is None:
        _apply_here(place, yes=yes, dry_run=dry_run, as_json=as_json)
        return
    with reach(place) as client:
        with waiting("looking at the project's files"):
            preview = client.apply(dry_run=True, diff=diff)
        if _is_approved(preview, yes=yes, dry_run=dry_run, as_json=as_json):
            with waiting("applying"):
                preview["applied"] = client.apply(expected=preview["identity"])["applied"]
    _tell_end(preview, as_json)


def _apply_here(place: Place, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Opening a warehouse takes the files as they are; what that does is shown before it is done."""
    say_that_none_runs()
    preview: dict[str, Any] = {}

    def approve(changes: Sequence[object], flows: int, settings: Sequence[object]) -> None:
        from headgate.service.plain import to_plain

        line.close()
        built = sum(change["kind"] != "removed" for change in to_plain(changes))
        preview.update(flows=to_plain(changes), untouched=flows - built, settings=to_plain(settings), applied=False)
        if not _is_approved(preview, yes=yes, dry_run=dry_run, as_json=as_json):
            _tell_end(preview, as_json)
            raise click.exceptions.Exit(0)

    with waiting("starting Spark") as line, open_here(place, line, approve):
        preview["applied"] = True
    _tell_end(preview, as_json)


def _is_approved(preview: Mapping[str, Any], *, yes: bool, dry_run: bool, as_json: bool) -> bool:
    """Shows what is to be done and asks; False when there is nothing to do."""
    if not as_json:
        for line in preview_lines(preview):
            tell(line)
    if dry_run or not (preview["flows"] or preview["settings"]):
        return False
    if not yes and not click.confirm("Apply this?", err=True):
        click.echo("nothing was applied", err=True)
        raise click.exceptions.Exit(FAILED)
    return True


def _tell_end(preview: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(preview)
    elif preview["applied"]:
        click.echo("applied")


def preview_lines(preview: Mapping[str, Any]) -> Iterator[str]:
    """What is to be done, for people."""
    for flow in preview["flows"]:
        yield f"{_SIGNS[flow['kind']]} {flow['name']}  {_told(flow)}"
    for setting in preview["settings"]:
        name = setting["name"]
        if setting["needs_restart"]:
            yield f"! {name}  needs a restart: it stays as it is until then"
        else:
            yield f"~ {name}  {shown(setting['before'])} → {shown(setting['after'])}"
    if not preview["flows"] and not preview["settings"]:
        yield "nothing has changed"
    elif preview["untouched"]:
        yield f"  {count_text(preview['untouched'], 'other flow')} untouched"


def _told(flow: Mapping[str, Any]) -> str:
    if flow["kind"] == "removed":
        return "removed: no longer kept; its table stays on the storage"
    read = f"{flow['rows_read']:,} rows ({size_text(flow['bytes_read'])})"
    why = f", because of {', '.join(flow['because_of'])}" if flow["because_of"] else ""
    rows = ""
    if flow["rows_added"] is not None:
        rows = f"; rows added {flow['rows_added']:,}, removed {flow['rows_removed']:,}"
    return f"{flow['kind']}{why}: built from {read}{rows}  [{flow['where']}]"
