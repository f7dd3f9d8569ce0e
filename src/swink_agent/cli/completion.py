"""`swink completion`: the script that teaches a shell to complete our commands and options."""

from __future__ import annotations

import click

__all__ = ["completion"]


@click.command(
    epilog="""\b
Examples:
  swink completion bash >> ~/.bashrc
  swink completion zsh > "${fpath[1]}/_swink"
  swink completion fish > ~/.config/fish/completions/swink.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from .root import swink

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(script(swink, {}, "swink", "_SWINK_COMPLETE").source())
