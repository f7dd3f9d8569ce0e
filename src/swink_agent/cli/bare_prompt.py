"""`-p` without a text: going on with a session where it stopped.

click gives an option the next word whatever it is, and a prompt may begin with a dash. So `-p` has no text only where
nothing follows it, or one of our own options does: `swink -p --continue`. `--prompt=--continue` is a prompt.
"""

from __future__ import annotations

import click

from .lazy import LazyGroup

__all__ = ["BARE_PROMPT", "RootGroup"]

BARE_PROMPT = "prompt-without-text"


class RootGroup(LazyGroup):
    """The group of `swink` itself, which reads `-p` without a text as a flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_bare_prompt(ctx, args))

    def _with_bare_prompt(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        taking = {name for option in options if not option.is_flag for name in option.opts}
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            word = args[position]
            if word in ("-p", "--prompt"):
                following = args[position + 1].partition("=")[0] if position + 1 < len(args) else ""
                if position + 1 == len(args) or following in names:
                    return [*args[:position], f"--{BARE_PROMPT}", *args[position + 1 :]]
            position += 2 if word in taking else 1
        return args
