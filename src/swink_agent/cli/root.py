"""`swink` itself: its options, its help, and the list of its commands.

What an option does is in `prompt.command` and in `app`, which are loaded only to run a prompt or to open the terminal
UI.
"""

from __future__ import annotations

from collections.abc import Callable
from os import isatty
from typing import Any

import click

from .process.groups import offered
from .prompt.bare_prompt import BARE_PROMPT, SPOKEN, TALK, RootGroup

COMMANDS = {
    "models": ("commands.models:models", "List models with prices and windows; fetch and remove local ones."),
    "keys": ("commands.keys:keys", "Keep the keys of providers: set, list, remove."),
    "config": ("commands.config:config", "Show and change settings; trust a folder's own."),
    "sessions": ("commands.sessions:sessions", "List, show, search, export, fork and remove recorded runs."),
    "eval": ("commands.eval:eval_group", "Run cases on an agent, score, compare, gate a release."),
    "skills": ("commands.skills:skills", "List the skills that the agent can read here."),
    "worker": ("commands.worker:worker", "Take durable runs of an application's agents."),
    "submit": ("commands.worker:submit", "Queue a durable run of an application's agent."),
    "runs": ("commands.runs:runs", "List, follow, answer, cancel and retry durable runs."),
    "undo": ("commands.undo:undo", "Put back what a run changed, with its commands too."),
    "doctor": ("commands.doctor:doctor", "Show what works on this machine, and what to do about the rest."),
    "web": ("commands.web:web", "Open the agent in a browser, and serve its API."),
    "acp": ("commands.acp:acp", "Serve the agent to an editor over stdin and stdout."),
    "mcp": ("commands.mcp:mcp", "List and test MCP servers; serve the agent's tools as one."),
    "proxy": ("commands.proxy:proxy", "Serve models to machines that have no keys."),
    "completion": ("completion.scripts:completion", "Print the completion script for a shell."),
    "help": ("commands.about:help_command", "Show the help of swink, or of one of its commands."),
    "version": ("commands.about:version_command", "Print the version."),
}
"""The modules of the commands, in `swink_agent.cli`, and their lines of help."""

EPILOG = """\b
Examples:
  swink                              the terminal UI
  swink "fix the failing test"       the same, and that is asked first; swink chat too
  swink -p "What does this project do?"
  git diff | swink -p "Review this change."
  swink -p "Fix the failing test" --allow "bash: pytest *" --allow edit_file
  swink -p "List the TODOs" --output json | jq -r .text
  swink -p "Name and version of this package" --schema schema.json
  swink -p "And now the other one" --continue
  swink --resume 20260131-2359 --answer call_1=yes

\b
Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no model or key,
4 a limit was hit, 5 calls wait for an answer (--answer), 130 interrupted."""


_GIVEN = click.core.ParameterSource.COMMANDLINE


def _names(ctx: click.Context, option: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    """The values given, or `None` if the option was not given."""
    return list(names) or None


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from .commands.about import tell_version

        tell_version()
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
@click.option(f"--{TALK}", "talk", is_flag=True, hidden=True)
@click.option("--inline", is_flag=True, help="The terminal UI in plain lines: for screen readers and logs.")
@click.option(
    "-c",
    "--continue",
    "continue",
    is_flag=True,
    help="Continue the newest session of this folder; see `swink sessions`.",
)
@click.option(
    "--resume",
    metavar="ID",
    shell_complete=offered("sessions"),
    help="Continue this session, named by the beginning of its id. After a limit or an error -p needs no text.",
)
@click.option(
    "--answer",
    multiple=True,
    metavar="CALL=yes|no",
    shell_complete=offered("answers"),
    help="Answer a call that waits in the continued session: CALL=yes, CALL=no, 'CALL=no: reason'. Repeatable.",
)
@click.option("--no-session", is_flag=True, help="Record nothing of this run.")
@click.option(
    "-m",
    "--model",
    metavar="PROVIDER:MODEL",
    shell_complete=offered("models"),
    help="Which model, or an alias of the settings. Default: settings, first key, else local.",
)
@click.option(
    "--thinking",
    type=click.Choice(["off", "minimal", "low", "medium", "high", "extra_high"]),
    help="How much reasoning to ask for.",
)
@click.option("--temperature", type=float, metavar="T", help="How much chance there is in replies, from 0 to 2.")
@click.option("--max-tokens", type=int, metavar="N", help="At most so many tokens in one reply.")
@click.option("--system", metavar="TEXT", help="Instructions instead of the standard ones.")
@click.option("--append-system", metavar="TEXT", help="Instructions in addition to the standard ones.")
@click.option(
    "--tools",
    metavar="NAMES",
    shell_complete=offered("tools"),
    help="Built-in tools, with commas between them, or none. Default: all.",
)
@click.option(
    "--approve",
    type=click.Choice(["none", "ask", "smart", "auto", "all"]),
    help="Which calls may run: none that need approval; each after asking; asking for all but harmless ones; asking "
    "for what leaves the sandbox; all. Default: auto in a folder that you agreed to, behind a sandbox and with "
    "checkpoints, else smart. If there is no user to ask, the answer is no.",
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
    help="How commands are confined; off confines nothing.",
)
@click.option("--network/--no-network", default=None, help="Whether commands may use the network. Default: not.")
@click.option(
    "--web-search/--no-web-search",
    default=None,
    help="Whether the model may search the web by its provider. Default: not.",
)
@click.option(
    "--otel/--no-otel", default=None, help="Whether runs are reported to an OpenTelemetry collector. Default: not."
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="HOST",
    help="Every command may reach this host, unasked: pypi.org, *.example.org, example.org:8443. Repeatable.",
)
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
@click.option(
    "--file",
    multiple=True,
    metavar="FILE",
    shell_complete=offered("files"),
    help="A PDF or a picture to go with the prompt. Repeatable.",
)
@click.option(
    "--skill",
    metavar="NAME",
    shell_complete=offered("skills"),
    help="Put the text of this skill before the prompt; see `swink skills`.",
)
@click.option(
    "--command",
    metavar="NAME",
    shell_complete=offered("prompt_commands"),
    help="A command of your own, with the prompt as its words.",
)
@click.option("--no-mcp", is_flag=True, help="Start none of the MCP servers in the settings.")
@click.option("--no-hooks", is_flag=True, help="Run none of the hooks in the settings.")
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

    Without -p it opens the terminal UI; words that are not a command are asked first. Where stdin or stdout is not
    a terminal, such words are a prompt as with -p. Its tools read, search and edit files and run commands, confined to
    the folder. With -p, stdin is added to the prompt when something is piped in, the answer goes to stdout, everything
    else to stderr.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options_of_prompt(ctx)
        return None
    goes_on = options["continue"] or options["resume"] is not None
    if options["bare_prompt"] and not goes_on and options["command"] is None:
        ctx.fail('-p needs a prompt: swink -p "…", or -p - to take it from stdin.')
    if options["continue"] and options["resume"] is not None:
        ctx.fail("--continue and --resume each name a session: leave one out.")
    if goes_on and options["no_session"]:
        ctx.fail("--no-session records nothing, and a continued session is recorded: leave one out.")
    if options["answer"]:
        _refuse_beside_answers(ctx, options, goes_on=goes_on)
    if options["talk"] and (options["prompt"] is not None or options["bare_prompt"]):
        ctx.fail("chat and tui open the terminal UI, and -p prints one answer without it: leave one out.")
    if options["prompt"] is None and not options["bare_prompt"]:
        if not _is_to_be_printed(options):
            return _talk(ctx, options)
        if options["spoken"]:
            options["prompt"], options["spoken"] = " ".join(options["spoken"]), ()
    if options["spoken"]:
        ctx.fail(f"{options['spoken'][0][:60]!r} is not a command, and -p already has the prompt: leave one out.")
    if options["inline"]:
        ctx.fail("--inline is for the terminal UI, which opens without -p: leave one out.")
    from .process.unanswered import UnansweredOutput

    with UnansweredOutput(options["output"]) as unanswered:
        # inside the block: an interrupt while this is loaded still gets its object
        from .prompt.command import run_prompt

        return run_prompt(options, unanswered)


def options_of_prompt(*names: str) -> Callable[[click.Command], click.Command]:
    """Gives another command options of `swink` itself, so that they have the same form and the same words."""

    def add(command: click.Command) -> click.Command:
        command.params += [option for option in swink.params if option.name in names]
        return command

    return add


def _is_to_be_printed(options: dict[str, Any]) -> bool:
    """Whether a prompt or answers without -p are printed as with it, because the terminal UI cannot run here."""
    is_at_terminal = isatty(0) and isatty(1)
    is_given = bool(options["spoken"] or options["answer"])
    return is_given and not is_at_terminal and not options["talk"] and not options["inline"]


def _refuse_beside_answers(ctx: click.Context, options: dict[str, Any], *, goes_on: bool) -> None:
    """Refuses what makes no sense with `--answer`, before anything is opened."""
    if not goes_on:
        ctx.fail("--answer is about calls of a session: name it with --resume ID, or --continue.")
    if options["prompt"] is not None or options["spoken"]:
        ctx.fail("a prompt goes on without the calls that wait, and --answer goes on with them: leave one out.")
    for name in ("image", "file"):
        if options[name]:
            ctx.fail(f"--{name} goes with a prompt, not with --answer: leave one out.")
    from swink_agent.app.runs.answers import check_form

    check_form(options["answer"])


def _refuse_options_of_prompt(ctx: click.Context) -> None:
    for option in ctx.command.params:
        if isinstance(option, click.Option) and ctx.get_parameter_source(option.name or "") == _GIVEN:
            is_negated = ctx.params.get(option.name or "") is False and option.secondary_opts
            name = "-p" if option.hidden else max(option.secondary_opts if is_negated else option.opts, key=len)
            ctx.fail(f"{name} goes with a prompt (-p), not with the command {ctx.invoked_subcommand}.")


def _talk(ctx: click.Context, options: dict[str, Any]) -> int:
    """Opens the terminal UI. Refuses options that have no meaning there."""
    for name in ("output", "schema", "quiet", "verbose"):
        if options[name] not in (None, False):
            ctx.fail(f'--{name} goes with -p "…", which prints one answer; the terminal UI has no use for it.')
    from .commands.tui import run_talk

    return run_talk(options, " ".join(options["spoken"]))
