"""`headgate backup` and `headgate restore`: the warehouse in a folder, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headgate.cli.options import Place, json_option, project_option, service_options, write_json
from headgate.cli.reaching import address_of
from headgate.cli.running import require_no_owner
from headgate.cli.waiting import WaitingLine, waiting
from headgate.measures import count_text, size_text
from headgate.tabular import plain


@click.command("backup")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@json_option
@service_options
def backup_command(place: Place, folder: Path, as_json: bool) -> None:
    """Copy the warehouse into FOLDER, which must be empty.

    The copy holds the ledger, tables and stream logs of one moment. A running service makes the copy while it works; with --url, FOLDER
    is one of its machine.

    \b
    headgate backup /backups/shop-monday
    """
    with waiting("making the backup") as line:
        made = _backup_made(place, folder, line)
    if as_json:
        write_json(made)
    else:
        size = f"{count_text(made['files'], 'file')}, {size_text(made['bytes'])}"
        click.echo(f"{made['folder']} has job {made['job']}: {size}")


def _backup_made(place: Place, folder: Path, line: WaitingLine) -> dict[str, Any]:
    address = address_of(place)
    if address is None:
        from headgate.config.project import load_project
        from headgate.runtime.recovery.backup import backup
        from headgate.runtime.spark.environment import private_files

        storage = load_project(place.file).storage
        require_no_owner(storage)
        with private_files():
            made = backup(storage, folder, line.measure)
        return {"folder": str(folder.absolute()), **made.summary()}
    from headgate.client import connect

    with connect(*address) as client:
        return client.backup(str(folder if place.url else folder.absolute()))


@click.command("restore")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@project_option
def restore_command(place: Place, folder: Path, as_json: bool) -> None:
    """Restore the warehouse from a backup.

    The project's storage must be empty. The command tells what has to be done at the sources afterwards.

    \b
    headgate restore /backups/shop-monday
    """
    from headgate.config.project import load_project
    from headgate.runtime.recovery.backup import restore
    from headgate.runtime.spark.environment import private_files

    project = load_project(place.file)
    require_no_owner(project.storage)
    with waiting("restoring the backup") as line, private_files():
        found = restore(folder, project.storage, line.measure, project)
    write_json(plain(asdict(found))) if as_json else click.echo(str(found))
