"""`headgate scale`: the sizes of the parts, and changing them by hand."""

from __future__ import annotations

import click

from headgate.cli.options import Place, json_option, service_options, write_json
from headgate.cli.reaching import reach
from headgate.cli.terminal import columns, show

_AUTO = "auto"
_SHOWN_CHANGES = 10


class _SizeOrAuto(click.ParamType[int | str]):
    """A whole number, or `auto`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text == _AUTO:
            return text
        if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text) > 0):
            self.fail(f"{text!r} is not a size: give a whole number from 1 on, or {_AUTO}", param, ctx)
        return int(text)


@click.command("scale")
@click.argument("part", required=False)
@click.argument("size", required=False, type=_SizeOrAuto())
@json_option
@service_options
def scale_command(place: Place, part: str | None, size: int | str | None, as_json: bool) -> None:
    """Show how large each part is and why, or set a size by hand.

    Parts grow and shrink by themselves where the project file has a section scaling. A size that was set by hand holds until
    the part is given back with auto, or until the next start.

    \b
    headgate scale
    headgate scale transform 4
    headgate scale transform auto
    """
    if (part is None) != (size is None):
        raise click.UsageError("give a PART and a SIZE, or neither")
    with reach(place) as client:
        found = client.scale() if part is None else client.fix_size(part, size if isinstance(size, int) else None)
    if as_json:
        write_json(found)
        return
    table = columns("part", "size", "most", "load", "why")
    for name, each in found["parts"].items():
        marks = [" (set by hand)"] * each["fixed"] + [" (limits)"] * each["is_limiting"]
        load = "" if each["load"] is None else f"{each['load']:.0%}"
        table.add_row(name, str(each["size"]), str(each["most"]), load, each["reason"] + "".join(marks))
    show(table)
    click.echo(f"{found['executors']} executors, {found['executor_hours']:.2f} executor hours today")
    for change in found["changes"][-_SHOWN_CHANGES:]:
        click.echo(
            f"{change['at'][:19]} {change['part']} from {change['before']} to {change['after']}: {change['reason']}"
        )
