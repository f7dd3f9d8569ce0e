"""Finds prompts that click would not: `-p` without a text, and words that are not a command.

click gives an option the next word, whatever it is, and a prompt may begin with a dash. So `-p` has no text only if
nothing or one of our options follows it: `swink -p --continue`. `--prompt=--continue` is a prompt.

`swink "fix the failing test"` opens the terminal UI with that prompt; options may follow it. A word that resembles a
command is a mistake, not a prompt, if it is alone or if a word that the command accepts follows. `swink chat` and
`swink tui` open the terminal UI by name, and the words after them are the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from ..process.groups import LazyGroup

BARE_PROMPT = "prompt-without-text"
SPOKEN = "spoken"
TALK = "talk"
_UI_WORDS = ("chat", "tui")


class RootGroup(LazyGroup):
    """The click group of `swink`. It reads `-p` without a text as a flag."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        words = _CommandLineWords(options)
        try:
            return super().parse_args(ctx, self._with_spoken(words, words.with_bare_prompt(args)))
        except click.NoSuchOption as error:  # hidden options are never suggested
            hidden = {name for option in options if option.hidden for name in option.opts}
            near = [name for name in error.possibilities or () if name not in hidden]
            raise click.NoSuchOption(error.option_name, error.message, near, error.ctx) from None

    def described(self) -> list[tuple[str, str]]:
        return [(_UI_WORDS[0], "Open the terminal UI, as swink alone does."), *super().described()]

    def _with_spoken(self, words: _CommandLineWords, args: list[str]) -> list[str]:
        """The command line with each word of a prompt for the terminal UI as a hidden option."""
        first = words.first_word(args)
        if first is None:
            return args
        given, rest = args[:first], args[first:]
        if rest[0] in _UI_WORDS:
            given, rest = [*given, f"--{TALK}"], rest[1:]
        elif self._is_command(rest):
            return args
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

    def _is_command(self, words: list[str]) -> bool:
        """Whether the first word is a command, or looks like a mistyped one, which is then an error."""
        word, following = words[0], [word for word in words[1:] if not word.startswith("-")]
        if word in self.commands_by_name:
            return not _is_said(word, following, self.commands_by_name)
        if any(map(str.isspace, word)):
            return False
        from swink_agent.core.texts.likeness import close_names

        near = close_names(word, self.commands_by_name, n=1)
        return bool(near) and (not following or following[0] in self._taken_by(near[0]))

    def _taken_by(self, name: str) -> list[str]:
        """The words that can follow a command: its subcommands, or the choices of its first argument."""
        command = self.get_command(click.Context(self), name)
        if isinstance(command, click.Group):
            return list(command.commands)
        arguments = [item for item in (command.params if command else ()) if isinstance(item, click.Argument)]
        kind = arguments[0].type if arguments else None
        return [str(choice) for choice in kind.choices] if isinstance(kind, click.Choice) else []


def _is_said(word: str, following: list[str], commands: Iterable[str]) -> bool:
    """Whether the word begins a sentence: "help me fix it" is a prompt, `help models list` a command."""
    if word == "version":
        return bool(following)
    return word == "help" and len(following) > 1 and following[0] not in commands


class _CommandLineWords:
    """Distinguishes options, their values and other words of a command line."""

    def __init__(self, options: list[click.Option]) -> None:
        self._names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        self._taking = {name for option in options if not option.is_flag for name in option.opts}

    def length(self, word: str) -> int:
        """How many words an option takes, including itself."""
        return 2 if self._last_of(word) in self._taking else 1

    def _last_of(self, word: str) -> str:
        """The option that the next word may belong to. In `-cp`, where flags share a dash, that is `-p`."""
        while len(word) > 2 and word[:2] in self._names - self._taking:
            word = f"-{word[2:]}"
        return word

    def first_word(self, args: list[str]) -> int | None:
        """The position of the first word that is neither an option nor the value of one."""
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
