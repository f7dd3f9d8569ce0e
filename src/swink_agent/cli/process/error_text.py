"""The text that a user reads about an exception, and its exit code.

Translates click's errors about a wrong command line into one line; other kinds of click errors keep click's message. No
text shows Python internals.
"""

from __future__ import annotations

import os

import click

from .groups import Number

DEBUG_VARIABLE = "SWINK_DEBUG"
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # same as in app.errors, which is not loaded for this
_LONGEST = 60


def text_of(error: BaseException) -> tuple[str, int]:
    from swink_agent.app.errors import ApplicationError
    from swink_agent.core.machine.extras import MissingExtra

    match error:
        case ApplicationError():
            return str(error), int(error.exit_code)
        case MissingExtra():
            return str(error), USAGE
        case click.exceptions.Abort() | KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case click.ClickException():
            return _usage_text(error), error.exit_code
        case MemoryError():
            return "there is not enough memory", FAILED
        case FileNotFoundError(filename=None) if not _has_folder():
            return "the current folder is gone: change to an existing one", USAGE
        case OSError(strerror=str(reason)):
            return f"{error.filename}: {reason}" if isinstance(error.filename, str) else reason, FAILED
        case _:
            return str(error).strip() or "the reason is unknown", FAILED


def is_foreseen(error: BaseException) -> bool:
    """Whether the caller or the machine caused the error. Any other error is a bug."""
    from swink_agent.app.errors import ApplicationError
    from swink_agent.core.machine.extras import MissingExtra

    return isinstance(error, (ApplicationError, MissingExtra, MemoryError, OSError))


def _has_folder() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


# -- wrong command lines -------------------------------------------------------------------------------------


def _usage_text(error: click.ClickException) -> str:
    """The message for a user. Like the program's other errors it does not end with a full stop."""
    match error:
        case click.NoSuchOption():
            return _no_such_option(error)
        case click.MissingParameter():
            return f"{_name_of(error)} is missing{_usage(error.ctx)}"
        case click.BadParameter():
            return _bad_value(error)
        case click.BadOptionUsage() if error.option_name and "requires" in error.message:
            return f"{error.option_name} needs a value"
        case click.BadOptionUsage() if error.option_name and "does not take" in error.message:
            return f"{error.option_name} takes no value"
        case click.UsageError() if error.message.startswith("No such command"):
            return _no_such_command(error)
        case click.UsageError() if "unexpected extra argument" in error.message:
            words = error.message.rpartition("(")[2].rstrip(")")
            return f"{_quoted(words)} is not expected{_usage(error.ctx)}"
        case _:
            return _first_letter_small(error.format_message().rstrip().removesuffix("."))


def _first_letter_small(text: str) -> str:
    """The text as it follows `error: `. A name such as `SET` keeps its first letter."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


# -- kinds ---------------------------------------------------------------------------------------------------


def _no_such_option(error: click.NoSuchOption) -> str:
    from swink_agent.core.texts.likeness import close_names

    name = error.option_name
    known = list(error.possibilities or ())
    if error.ctx is not None:
        options = [item for item in error.ctx.command.get_params(error.ctx) if isinstance(item, click.Option)]
        known = [word for item in options if not item.hidden for word in (*item.opts, *item.secondary_opts)]
    near = close_names(name, [word for word in known if word.startswith("--")], cutoff=0.7)
    hint = f"; did you mean {near[0]}?" if near else ""
    whose = "" if error.ctx is None else f"{error.ctx.command_path} has "
    see = "" if near or error.ctx is None else f"; see {error.ctx.command_path} --help"
    return f"{whose}no option {_quoted(name)}{hint}{see}"


def _no_such_command(error: click.UsageError) -> str:
    from swink_agent.core.texts.likeness import close_names

    given = getattr(error, "command_name", "") or error.message.split("'")[1:2] or [""]
    word = given if isinstance(given, str) else given[0]
    ctx = error.ctx
    if ctx is None or not isinstance(ctx.command, click.Group):
        return f"no command is called {_quoted(word)}"
    group = ctx.command
    names = [name for name in group.list_commands(ctx) if not getattr(group.commands.get(name), "hidden", False)]
    if word == "help":
        hint = f"write {ctx.command_path} --help"
    elif near := close_names(word, names):
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"there are: {', '.join(names)}"
    return f"{ctx.command_path} has no command {_quoted(word)}; {hint}"


def _bad_value(error: click.BadParameter) -> str:
    """The message for a wrong value: what it cannot be and what it must be, in the same form as for settings."""
    name = _name_of(error)
    kind = None if error.param is None else error.param.type
    value, is_wrong, _ = error.message.partition(" is not ")
    if kind is None or not is_wrong:
        return f"{name}: {_first_letter_small(error.message.rstrip('.'))}"
    if isinstance(kind, click.Choice):
        from swink_agent.core.texts.likeness import close_names

        if isinstance(error.param, click.Argument):
            name = error.param.human_readable_name
        choices = [str(choice) for choice in kind.choices]
        near = close_names(value.strip("'\""), choices)
        hint = f"did you mean {near[0]}? It must be" if near else "it must be"
        return f"{name} cannot be {value}: {hint} one of {', '.join(choices)}"
    wanted = _wanted(kind)
    return f"{name} cannot be {value}: it must be {wanted}" if wanted else f"{name}: {error.message.rstrip('.')}"


def _wanted(kind: object) -> str:
    if isinstance(kind, Number):
        return kind.wanted
    return "a whole number" if kind is click.INT else "a number" if kind is click.FLOAT else ""


# -- parts ---------------------------------------------------------------------------------------------------


def _name_of(error: click.BadParameter) -> str:
    """The long name of an option, or an argument's name as the usage shows it."""
    param = error.param
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    if param is not None and error.ctx is not None:
        return param.make_metavar(error.ctx).strip("[]").removesuffix("...")
    return "a value"


def _usage(ctx: click.Context | None) -> str:
    if ctx is None:
        return ""
    usage = " ".join(ctx.get_usage().split()).removeprefix("Usage: ")
    return f"; usage: {usage}"


def _quoted(word: str) -> str:
    """A word in quotes, cut if it is long. Secrets are masked first: a part of one would not be recognised."""
    from swink_agent.core.secrets.redaction import Redactor

    word = Redactor().redact(word)
    shown = "".join(character if character.isprintable() else "?" for character in word[:_LONGEST])
    return f"'{shown}{'…' if len(word) > _LONGEST else ''}'"
