"""`headgate completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    headgate completion bash > ~/.local/share/bash-completion/completions/headgate
    headgate completion zsh > ~/.zfunc/_headgate
    headgate completion fish > ~/.config/fish/completions/headgate.fish
    """
    root = context.find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root.command, {}, "headgate", "_HEADGATE_COMPLETE").source())
