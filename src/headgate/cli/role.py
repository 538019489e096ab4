"""`headgate role`: named roles, each with a token of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from headgate.cli.options import Place, json_option, project_option, write_json
from headgate.cli.running import storage_of
from headgate.cli.table import table_lines
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.warehouse.roles import Can, Roles


@click.group("role")
def role_command() -> None:
    """Give others a token of their own: to read, to produce, or to administer.

    A running service knows of a change at once. From the first role on the service asks everyone for a token, except
    commands of the user who runs it.

    \b
    headgate role add analyst --can read
    headgate role list --json
    headgate role remove analyst --project /etc/headgate
    """


@role_command.command("add")
@click.argument("name")
@click.option(
    "--can",
    type=click.Choice(["read", "produce", "administer"]),
    required=True,
    help="read: queries, status, history, metrics. produce: the same, and filling producers' tables. administer: everything.",
)
@json_option
@project_option
def add_command(place: Place, name: str, can: str, as_json: bool) -> None:
    """Create the role NAME and write its token, which is not shown again."""
    token = _roles(place).add(name, cast("Can", can))
    if as_json:
        write_json({"name": name, "can": can, "token": token})
        return
    click.echo(token)
    click.echo(f"{name} can {can} with this token from now on; it is not stored and not shown again", err=True)


@role_command.command("list")
@json_option
@project_option
def list_command(place: Place, as_json: bool) -> None:
    """List the roles."""
    roles = _roles(place).all().values()
    if as_json:
        write_json([{"name": role.name, "can": role.can} for role in roles])
    elif not roles:
        click.echo("there are no roles: headgate role add NAME --can read")
    else:
        for line in table_lines(("role", "can"), [(role.name, role.can) for role in roles]):
            click.echo(line)


@role_command.command("remove")
@click.argument("name")
@json_option
@project_option
def remove_command(place: Place, name: str, as_json: bool) -> None:
    """Remove the role NAME; its token is refused from now on."""
    _roles(place).remove(name)
    write_json({"removed": name}) if as_json else click.echo(f"the role {name} is gone, and its token with it")


def _roles(place: Place) -> Roles:
    from headgate.warehouse.roles import Roles

    storage = storage_of(place)
    if "://" in storage:
        raise ConfigError(f"{storage} is not a local folder", hint="roles are kept in a local storage")
    return Roles(storage)
