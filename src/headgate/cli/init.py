"""`headgate init`: a new project, from nothing, or from a database or files that are there."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.cli.options import PROJECT_FILE, json_option, write_json
from headgate.cli.running import require_no_owner
from headgate.cli.waiting import waiting
from headgate.errors import ConfigError, HeadgateError


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--from-postgres", "dsn", metavar="DSN", help="Propose sources and a first flow from this database.")
@click.option(
    "--files",
    "landing",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Propose a source and a first flow from the CSV, JSON and Parquet files below this folder.",
)
@click.option("--name", help="The project's name; the folder's by default.")
@json_option
def init_command(folder: Path, dsn: str | None, landing: Path | None, name: str | None, as_json: bool) -> None:
    """Write a new project into FOLDER.

    Without a database, the project runs as it is. With --from-postgres, headgate reads the catalog, proposes the tables, how to capture
    them and a first flow, and says what privileges are missing. With --files, every folder of files below FOLDER, and every kind of file
    in it, becomes a table. Files that exist stay as they are; a password is not written.

    \b
    headgate init shop
    headgate init shop --from-postgres "postgresql://etl:secret@db.example.com:5432/shop"
    headgate init shop --files /data/landing
    """
    from headgate.cli.starter import STORAGE, project_name, starter

    if dsn is not None and landing is not None:
        raise click.UsageError("--from-postgres and --files cannot be given together")
    if (folder / PROJECT_FILE).exists():
        raise ConfigError(f"there is a project already: {folder / PROJECT_FILE}", hint="name another folder")
    for storage in (folder, folder / STORAGE):
        require_no_owner(str(storage))
    chosen = project_name(name or folder.absolute().name)
    problems: tuple[HeadgateError, ...] = ()
    variable = None
    if landing is not None:
        from headgate.cli.files_project import propose_files

        with waiting("looking at the files"):
            files = propose_files(chosen, landing.absolute())
    elif dsn is None:
        files = starter(chosen)
    else:
        from headgate.cli.postgres_project import propose

        with waiting("looking at the database"):
            proposal = propose(chosen, dsn)
        files, problems, variable = proposal.files, proposal.problems, proposal.variable
    written, kept = _write(folder, files)
    if as_json:
        missing = [{"what": problem.what, "hint": problem.hint} for problem in problems]
        write_json({"name": chosen, "written": written, "kept": kept, "problems": missing, "variable": variable})
        return
    for path in written:
        click.echo(f"wrote {folder / path}")
    for path in kept:
        click.echo(f"kept  {folder / path}, which was there")
    for problem in problems:
        click.echo(f"to do: {problem.what}\n       {problem.hint}")
    if variable is not None:
        click.echo(f"to do: export {variable}=…  # the password, which is in no file")
    there = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"next:  {there}headgate check && headgate run")


def _write(folder: Path, files: dict[str, str]) -> tuple[list[str], list[str]]:
    written, kept = [], []
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Made by this call or not at all: another file of that name is never touched.
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
            written.append(path)
        except FileExistsError:
            kept.append(path)
    return written, kept
