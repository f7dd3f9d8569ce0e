"""`swink` itself: its options, its help, and the list of its commands.

The options are implemented in `prompt.command` and in `app`, which are loaded only to run a prompt or to open the
terminal UI.
"""

from __future__ import annotations

from collections.abc import Callable
from os import isatty
from typing import Any

import click

from .process.groups import picks, takes
from .prompt.bare_prompt import BARE_PROMPT, SPOKEN, TALK, RootGroup

COMMANDS = {
    "models": ("commands.models:models", "List models with prices and windows; fetch and remove local ones."),
    "keys": ("commands.keys:keys", "Set, list and remove the keys of providers."),
    "config": ("commands.config:config", "Show and change settings; trust a folder's own settings."),
    "sessions": ("commands.sessions:sessions", "List, show, search, export, fork and remove recorded runs."),
    "eval": ("commands.eval:eval_group", "Run cases on an agent; score, compare and gate the results."),
    "skills": ("commands.skills:skills", "List the skills that the agent can read here."),
    "worker": ("commands.worker:worker", "Carry out durable runs of an application's agents."),
    "submit": ("commands.worker:submit", "Queue a durable run of an application's agent."),
    "runs": ("commands.runs:runs", "List, follow, answer, cancel and retry durable runs."),
    "undo": ("commands.undo:undo", "Undo the changes of a run, also those of its commands."),
    "doctor": ("commands.doctor:doctor", "Check what works on this machine, and how to fix the rest."),
    "web": ("commands.web:web", "Open the agent in a browser, and serve its API."),
    "acp": ("commands.acp:acp", "Serve the agent to an editor over stdin and stdout."),
    "mcp": ("commands.mcp:mcp", "List and test MCP servers; serve the agent's tools as one."),
    "proxy": ("commands.proxy:proxy", "Serve models to machines that have no keys."),
    "completion": ("completion.scripts:completion", "Print the completion script for a shell."),
    "help": ("commands.about:help_command", "Show the help of swink, or of one of its commands."),
    "version": ("commands.about:version_command", "Print the version."),
}
"""The commands with their modules in `swink_agent.cli` and their one-line help."""

EPILOG = """\b
Examples:
  swink                              the terminal UI
  swink "fix the failing test"       the terminal UI, with this as the first prompt
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


SECTIONS = {
    "Prompt and answer": "prompt output schema image file skill command quiet verbose",
    "Sessions": "continue resume answer no_session",
    "Model": "model thinking temperature max_tokens system append_system web_search",
    "What it may do": "tools approve allow deny sandbox network allow_hosts cwd add_dir",
    "Limits": "max_turns max_cost timeout",
}
"""The sections of the help, each with its options in their order; the other options come last."""


def _switch(name: str, help: str) -> Callable[[Any], Any]:  # noqa: A002 - as click's
    """An option that is on, off or not given."""
    return click.option(f"--{name}/--no-{name}", default=None, help=help)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from .commands.about import tell_version

        tell_version()
        ctx.exit()


@click.group(
    cls=RootGroup,
    commands_by_name=COMMANDS,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@takes("-p --prompt TEXT", "Send this prompt to the agent, and print its answer. - reads it from stdin.")
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
@takes(
    "--resume ID",
    "Continue the session whose id begins with this. After a limit or an error, -p needs no text.",
    "sessions",
)
@takes(
    "--answer CALL=yes|no",
    "Answer a call that waits in the continued session: CALL=yes, CALL=no, 'CALL=no: reason'. Repeatable.",
    "answers",
    multiple=True,
)
@click.option("--no-session", is_flag=True, help="Record nothing of this run.")
@takes(
    "-m --model PROVIDER:MODEL",
    "The model, or an alias from the settings. Default: the settings, else the first key, else local.",
    "models",
)
@picks("--thinking", "off minimal low medium high extra_high", "How much reasoning to ask for.")
@takes("--temperature T", "Randomness of replies, from 0 to 2.", type=float)
@takes("--max-tokens N", "The most tokens in one reply.", type=int)
@takes("--system TEXT", "Instructions instead of the standard ones.")
@takes("--append-system TEXT", "Instructions in addition to the standard ones.")
@takes("--tools NAMES", "Built-in tools, separated by commas, or none. Default: all.", "tools")
@picks(
    "--approve",
    "none ask smart auto all",
    "Which calls run without a question: ask (none), smart (harmless ones), auto (those in the sandbox too), all (but "
    "access beyond the sandbox). With none, no call runs that needs approval. Default: auto if you agreed for this "
    "folder, else smart.",
)
@takes(
    "--allow RULE",
    "Calls that run unasked: 'bash: pytest *', 'write_file: src/**', a tool alone. Repeatable.",
    "rules",
    multiple=True,
)
@takes("--deny RULE", "Calls that never run, by the same rules. Repeatable.", "rules", multiple=True)
@picks("--sandbox", "auto bubblewrap landlock sandbox-exec off", "How commands are confined; off confines nothing.")
@_switch("network", "Whether commands may use the network. Default: no.")
@_switch("web-search", "Whether the model may search the web through its provider. Default: no.")
@_switch("otel", "Whether runs are reported to an OpenTelemetry collector. Default: no.")
@takes(
    "--allow-host allow_hosts HOST",
    "A host that every command may reach unasked: pypi.org, *.example.org, example.org:8443. Repeatable.",
    multiple=True,
)
@_switch("masking", "Whether secrets are masked. Default: yes.")
@takes("--unmask NAME", "Do not mask the secret of this name, such as DB_PASSWORD. Repeatable.", multiple=True)
@takes("--max-turns N", "Limit of replies in the run. Default: 50.", type=int)
@takes("--max-cost USD", "Cost limit of the run in US dollars; never exceeded.", type=float)
@takes("--timeout SECONDS", "Time limit of the run in seconds.", type=float)
@picks("--output", "text json stream-json", "Print the answer (default), one object, or every event as a line.")
@takes("--schema FILE|JSON", "A JSON Schema, or a file with one, that the answer must match.", "files")
@takes("--image FILE", "A picture to send with the prompt. Repeatable.", "files", multiple=True)
@takes("--file FILE", "A PDF or a picture to send with the prompt. Repeatable.", "files", multiple=True)
@takes("--skill NAME", "Put the text of this skill before the prompt; see `swink skills`.", "skills")
@takes("--command NAME", "Use this custom command, with the prompt as its arguments.", "prompt_commands")
@click.option("--no-mcp", is_flag=True, help="Do not start the MCP servers in the settings.")
@click.option("--no-hooks", is_flag=True, help="Do not run the hooks in the settings.")
@takes("-C --cwd FOLDER", "Work in this folder.", "folders")
@takes("--add-dir FOLDER", "Read and write in this folder too. Repeatable.", "folders", multiple=True)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Print thinking, tool results and usage on stderr.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def swink(ctx: click.Context, /, **options: Any) -> int | None:
    """An agent that works in the current folder with the model of your choice, or with one on this machine.

    Without -p it opens the terminal UI; words that are not a command are the first prompt. If stdin or stdout is not a
    terminal, such words are a prompt as with -p. The tools read, search and edit files and run commands, confined to
    the folder. With -p, piped stdin is added to the prompt, the answer goes to stdout, and everything else to stderr.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options_of_prompt(ctx)
        return None
    goes_on = options["continue"] or options["resume"] is not None
    if options["bare_prompt"] and not goes_on and options["command"] is None:
        ctx.fail('-p needs a prompt: swink -p "…", or -p - to read it from stdin.')
    if options["continue"] and options["resume"] is not None:
        ctx.fail("--continue and --resume each name a session: leave one out.")
    if goes_on and options["no_session"]:
        ctx.fail("with --no-session nothing is recorded, but a continued session must be: leave one out.")
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
    """Gives another command some options of `swink` itself, with the same form and help."""

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
    """Refuses options that make no sense with `--answer`, before anything is opened."""
    if not goes_on:
        ctx.fail("--answer needs a session: give --resume ID, or --continue.")
    if options["prompt"] is not None or options["spoken"]:
        ctx.fail("a prompt rejects the calls that wait, and --answer answers them: leave one out.")
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
            ctx.fail(f'--{name} is for -p "…", which prints one answer; the terminal UI does not use it.')
    from .commands.tui import run_talk

    return run_talk(options, " ".join(options["spoken"]))
