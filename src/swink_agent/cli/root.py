"""`swink` itself: its options, its help, and the list of its commands.

Owns the words of the command line. What an option does is in `prompt_command` and in `app`; nothing of them is loaded
before there is a prompt to run, or a terminal UI to open.
"""

from __future__ import annotations

from typing import Any

import click

from .bare_prompt import BARE_PROMPT, SPOKEN, RootGroup
from .lazy import offered

__all__ = ["swink"]

COMMANDS = {
    "models": ("swink_agent.cli.models:models", "List models with prices and windows; fetch and remove local ones."),
    "keys": ("swink_agent.cli.keys:keys", "Keep the keys of providers: set, list, remove."),
    "config": ("swink_agent.cli.config:config", "Show and change settings; trust a folder's own."),
    "sessions": ("swink_agent.cli.sessions:sessions", "List, show, search, export, fork and remove recorded runs."),
    "eval": ("swink_agent.cli.eval:eval_group", "Run cases on an agent, score, compare, gate a release."),
    "undo": ("swink_agent.cli.undo:undo", "Put back what the file tools of a run changed."),
    "doctor": ("swink_agent.cli.doctor:doctor", "Tell what works on this machine, and what to do about the rest."),
    "proxy": ("swink_agent.cli.proxy:proxy", "Serve models to machines that have no keys."),
    "completion": ("swink_agent.cli.completion:completion", "Print the completion script for a shell."),
}

EPILOG = """\b
Examples:
  swink                              the terminal UI
  swink "fix the failing test"       the same, and that is asked first
  swink -p "What does this project do?"
  git diff | swink -p "Review this change."
  swink -p "Fix the failing test" --allow "bash: pytest *" --allow edit_file
  swink -p "List the TODOs" --output json | jq -r .text
  swink -p "Name and version of this package" --schema schema.json
  swink -p "And now the other one" --continue

\b
Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no model or key,
4 a limit was hit, 130 interrupted."""


def _names(ctx: click.Context, option: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    """What was given, or `None`, as for any option that was not."""
    return list(names) or None


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from swink_agent import __version__

        click.echo(f"swink {__version__}")
        ctx.exit()


@click.group(
    cls=RootGroup,
    commands_by_name=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.option("-p", "--prompt", metavar="TEXT", help="Ask the agent this, and print its answer. - takes it from stdin.")
@click.option(f"--{BARE_PROMPT}", "bare_prompt", is_flag=True, hidden=True)
@click.option(f"--{SPOKEN}", "spoken", multiple=True, hidden=True)
@click.option("--inline", is_flag=True, help="The terminal UI in plain lines: for screen readers and logs.")
@click.option(
    "-c",
    "--continue",
    "continue",
    is_flag=True,
    help="Go on with the newest session of this folder; see `swink sessions`.",
)
@click.option(
    "--resume",
    metavar="ID",
    shell_complete=offered("sessions"),
    help="Go on with this session, by the beginning of its id. After a limit or an error -p needs no text.",
)
@click.option("--no-session", is_flag=True, help="Record nothing of this run.")
@click.option(
    "-m",
    "--model",
    metavar="PROVIDER:MODEL",
    shell_complete=offered("models"),
    help="Which model. Default: settings, first key, else local.",
)
@click.option(
    "--thinking",
    type=click.Choice(["off", "minimal", "low", "medium", "high", "extra_high"]),
    help="How much reasoning to ask for.",
)
@click.option("--system", metavar="TEXT", help="Instructions in place of the standard ones.")
@click.option("--append-system", metavar="TEXT", help="Instructions besides the standard ones.")
@click.option(
    "--tools",
    metavar="NAMES",
    shell_complete=offered("tools"),
    help="Built-in tools, with commas between them, or none. Default: all.",
)
@click.option(
    "--approve",
    type=click.Choice(["none", "ask", "smart", "all"]),
    help="Which calls may run: none that need approval, each after asking, asking for all but harmless ones "
    "(default), or all. With nobody there to ask, asking means no.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    shell_complete=offered("rules"),
    help="Calls that need no question: 'bash: pytest *', 'write_file: src/**', a tool alone. Repeatable.",
)
@click.option(
    "--deny",
    multiple=True,
    metavar="RULE",
    shell_complete=offered("rules"),
    help="Calls that never run, by the same rules. Repeatable.",
)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "landlock", "sandbox-exec", "off"]),
    help="How commands are confined. off takes the walls away.",
)
@click.option("--network/--no-network", default=None, help="Whether commands may use the network. Default: not.")
@click.option("--masking/--no-masking", default=None, help="Whether secrets are masked. Default: they are.")
@click.option(
    "--unmask",
    multiple=True,
    metavar="NAME",
    callback=_names,
    help="Do not mask the secret of this name, such as DB_PASSWORD. Can be given again.",
)
@click.option("--max-turns", type=int, metavar="N", help="At most so many replies. Default: 50.")
@click.option("--max-cost", type=float, metavar="USD", help="At most so many dollars; never overshot.")
@click.option("--timeout", type=float, metavar="SECONDS", help="At most so long.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    help="stdout gets the answer (default), one object, or every event as a line.",
)
@click.option(
    "--schema",
    metavar="FILE|JSON",
    shell_complete=offered("files"),
    help="A JSON Schema, or a file with one: the answer is a value of that shape.",
)
@click.option(
    "--image",
    multiple=True,
    metavar="FILE",
    shell_complete=offered("files"),
    help="A picture to go with the prompt. Repeatable.",
)
@click.option("-C", "--cwd", metavar="FOLDER", shell_complete=offered("folders"), help="Work in this folder.")
@click.option(
    "--add-dir",
    multiple=True,
    metavar="FOLDER",
    shell_complete=offered("folders"),
    help="Read and write in this folder too. Repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Thinking, tool results and usage on stderr.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def swink(ctx: click.Context, /, **options: Any) -> int | None:
    """An agent that works in the current folder with the model of your choice, or with one on this machine.

    Without -p it opens the terminal UI; words that are no command are what is asked first. Its tools read, search and
    edit files and run commands, confined to the folder. With -p, stdin is added to the prompt when something is piped
    in, the answer goes to stdout, everything else to stderr.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options_of_prompt(ctx, options)
        return None
    goes_on = options["continue"] or options["resume"] is not None
    if options["bare_prompt"] and not goes_on:
        ctx.fail("Option '-p' requires an argument.")
    if options["continue"] and options["resume"] is not None:
        ctx.fail("--continue and --resume each name a session: leave one out.")
    if goes_on and options["no_session"]:
        ctx.fail("--no-session records nothing, and a session that goes on is recorded: leave one out.")
    if options["prompt"] is None and not options["bare_prompt"]:
        return _talk(ctx, options)
    if options["spoken"]:
        ctx.fail(f"{options['spoken'][0][:60]!r} is no command, and the prompt is behind -p already: leave one out.")
    if options["inline"]:
        ctx.fail("--inline is for the terminal UI, which opens without -p: leave one out.")
    from .unanswered import UnansweredOutput

    with UnansweredOutput(options["output"]) as unanswered:
        from .prompt_command import run_prompt  # within: an interrupt while it is loaded has its object too

        return run_prompt(options, unanswered)


def _given(options: dict[str, Any]) -> list[str]:
    words = {**options, "prompt": "" if options["bare_prompt"] else options["prompt"], "bare_prompt": None}
    return [name for name, value in words.items() if value not in (None, False, ())]


def _refuse_options_of_prompt(ctx: click.Context, options: dict[str, Any]) -> None:
    if given := _given(options):
        ctx.fail(
            f"--{given[0].replace('_', '-')} goes with a prompt (-p), not with the command {ctx.invoked_subcommand}."
        )


def _talk(ctx: click.Context, options: dict[str, Any]) -> int:
    """The terminal UI, with the options that mean something there."""
    for name in ("output", "schema", "quiet", "verbose"):
        if options[name] not in (None, False):
            ctx.fail(f'--{name} goes with -p "…", which prints one answer; the terminal UI has no use for it.')
    from .tui_command import run_talk

    return run_talk(options, " ".join(options["spoken"]))
