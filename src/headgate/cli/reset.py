"""`headgate reset`: takes the warehouse away, here and at its sources; the project's files stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headgate.cli.exits import FAILED
from headgate.cli.options import Place, json_option, project_option, write_json
from headgate.cli.running import require_no_owner
from headgate.cli.terminal import tell
from headgate.cli.waiting import waiting
from headgate.errors import HeadgateError
from headgate.measures import size_text

if TYPE_CHECKING:
    from headgate.cli.leaving import AtSource


@click.command("reset")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--keep-slots", is_flag=True, help="Leave slots and triggers at the sources: for a project that runs again soon."
)
@json_option
@project_option
def reset_command(place: Place, yes: bool, keep_slots: bool, as_json: bool) -> None:
    """Delete the warehouse; the project stays.

    Deletes its tables and history, and what capture created at the sources: a replication slot that nobody reads fills the server's
    disk. The command lists what it deletes and asks first. Only a headgate storage that no process has open is deleted, and only files
    that headgate made.

    \b
    headgate reset
    headgate reset --yes --keep-slots
    """
    from headgate.cli.leaving import at_sources, delete, holdings
    from headgate.config.project import load_project

    project = load_project(place.file)
    require_no_owner(project.storage)
    found = holdings(project.storage)
    left = at_sources(project)
    if found is None and (keep_slots or not left):
        write_json({"deleted": [], "stayed": []}) if as_json else click.echo(
            f"there is nothing to delete in {project.storage}"
        )
        return
    folders = () if found is None else found.folders
    if not as_json:
        for folder, size in folders:
            click.echo(f"delete {folder}  {size_text(size)}")
        for path in () if found is None else found.others:
            click.echo(f"keep   {path}, which is not headgate's")
        for each in left:
            click.echo(f"{'keep  ' if keep_slots else 'delete'} {each.what}, at the source {each.source}")
    if not yes and not click.confirm("Delete this for good?", err=True):
        click.echo("nothing was deleted", err=True)
        raise click.exceptions.Exit(FAILED)
    if found is not None:
        with waiting("deleting the warehouse"):
            delete(found)
    stayed = [] if keep_slots else [each.what for each in left if not _removed(each)]
    if as_json:
        gone = [] if keep_slots else [each.what for each in left if each.what not in stayed]
        write_json({"deleted": [*(str(folder) for folder, _ in folders), *gone], "stayed": stayed})
    else:
        click.echo("done; the project's files are as they were")
    if stayed:
        raise click.exceptions.Exit(FAILED)


def _removed(each: AtSource) -> bool:
    """Removes it, or tells why that could not be and how to do it by hand."""
    try:
        with waiting(f"removing {each.what}"):
            each.remove()
        return True
    except HeadgateError as error:
        tell(f"error: {each.what} could not be removed: {error.what}", err=True)
        tell(f"hint: at the source {each.source}: {each.remedy}", err=True)
        return False
