"""Prompts that click would not take for one: `-p` without a text, and words that are no command.

click gives an option the next word whatever it is, and a prompt may begin with a dash. So `-p` has no text only where
nothing follows it, or one of our own options does: `swink -p --continue`. `--prompt=--continue` is a prompt.

`swink "fix the failing test"` opens the terminal UI with that prompt; options may stand behind it. A single word that
looks like a command is taken for a mistake, not for a prompt.
"""

from __future__ import annotations

import click

from .lazy import LazyGroup

__all__ = ["BARE_PROMPT", "SPOKEN", "RootGroup"]

BARE_PROMPT = "prompt-without-text"
SPOKEN = "spoken"


class RootGroup(LazyGroup):
    """The group of `swink` itself, which reads `-p` without a text as a flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        words = _CommandLineWords(options)
        try:
            return super().parse_args(ctx, self._with_spoken(words, words.with_bare_prompt(args)))
        except click.NoSuchOption as error:  # what the help does not list is nobody's mistake for something else
            hidden = {name for option in options if option.hidden for name in option.opts}
            near = [name for name in error.possibilities or () if name not in hidden]
            raise click.NoSuchOption(error.option_name, error.message, near, error.ctx) from None

    def _with_spoken(self, words: _CommandLineWords, args: list[str]) -> list[str]:
        """The words of a prompt for the terminal UI, each as the option that click knows it by."""
        first = words.first_word(args)
        if first is None or self._is_command(args[first]):
            return args
        given = args[:first]
        rest = args[first:]
        while rest:
            word = rest[0]
            if word == "--":
                return [*given, *[part for spoken in rest[1:] for part in (f"--{SPOKEN}", spoken)]]
            if word.startswith("-") and len(word) > 1:
                count = words.length(word)
                given += rest[:count]
            else:
                count = 1
                given += [f"--{SPOKEN}", word]
            rest = rest[count:]
        return given

    def _is_command(self, word: str) -> bool:
        """Whether it is one, or is meant to be one: then the mistake is told."""
        if word in self.commands_by_name:
            return True
        from swink_agent.core.texts.likeness import close_names

        return bool(not any(map(str.isspace, word)) and close_names(word, self.commands_by_name, n=1))


class _CommandLineWords:
    """What of a command line are options, what are their values, and what is neither."""

    def __init__(self, options: list[click.Option]) -> None:
        self._names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        self._taking = {name for option in options if not option.is_flag for name in option.opts}

    def length(self, word: str) -> int:
        """How many words an option takes, with itself."""
        return 2 if self._last_of(word) in self._taking else 1

    def _last_of(self, word: str) -> str:
        """The option that the next word may belong to: of `-cp`, where flags share a dash, that is `-p`."""
        while len(word) > 2 and word[:2] in self._names - self._taking:
            word = f"-{word[2:]}"
        return word

    def first_word(self, args: list[str]) -> int | None:
        """Where the first word is that is no option and no value of one."""
        position = 0
        while position < len(args) and args[position].startswith("-") and len(args[position]) > 1:
            if args[position] == "--":
                return position if position + 1 < len(args) else None
            position += self.length(args[position])
        return position if position < len(args) else None

    def with_bare_prompt(self, args: list[str]) -> list[str]:
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            word = args[position]
            if self._last_of(word) in ("-p", "--prompt"):
                following = args[position + 1].partition("=")[0] if position + 1 < len(args) else ""
                if position + 1 == len(args) or self._last_of(following) in self._names:
                    before = [] if word in self._names else [word[:-1]]
                    return [*args[:position], *before, f"--{BARE_PROMPT}", *args[position + 1 :]]
            position += self.length(word)
        return args
