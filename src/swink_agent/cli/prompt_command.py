"""`swink -p`: one prompt, the standard agent, an answer.

Owns the order of things: what can be wrong is found before anything is read, spent or run. The run itself is in
`app.headless`, what is said meanwhile in `reporter`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from swink_agent.app.agent import AgentOptions, StandardAgent, standard_agent
from swink_agent.app.credentials import Credentials
from swink_agent.app.errors import ApplicationError, ExitCode, UsageProblem
from swink_agent.app.headless import HeadlessRun, Outcome
from swink_agent.app.output import Output, error_summary, output_for
from swink_agent.app.settings import load_settings
from swink_agent.app.trust import TrustStore, find_project

from .asking import TerminalAsk
from .entry import discard_stdout
from .interrupts import interruptible
from .reporter import Loudness, Reporter
from .screen import Screen, write_answer
from .stdin_text import read_stdin

__all__ = ["run_prompt"]

_SETTINGS = (
    *("model", "thinking", "system", "tools", "approve", "sandbox", "network"),
    *("max_turns", "max_cost", "timeout", "output"),
)
_UNATTENDED = "there is nobody here to ask; --approve all allows such calls, confined to the folder"


def run_prompt(options: dict[str, Any]) -> int:
    """The whole of it, to an exit code. Raises `ApplicationError` for what is wrong before the run."""
    _check_stdout()
    loudness: Loudness = "verbose" if options["verbose"] else "quiet" if options["quiet"] else "normal"
    screen = Screen(sys.stderr)
    folder = _folder(options["cwd"])
    project = find_project(folder, TrustStore())
    settings = load_settings(
        flags={name: options[name] for name in _SETTINGS}, project=None if project is None else project.settings
    )
    schema = _schema(options["schema"])
    credentials = Credentials()
    redactor = credentials.redactor()
    asks = settings.value("approve") in ("ask", "smart")
    asking = TerminalAsk.open(screen, redactor.redact) if asks else None
    try:
        reporter = Reporter(screen, redactor, loudness, rejection_hint=_UNATTENDED if asks and asking is None else "")
        agent_options = AgentOptions(
            settings=settings,
            credentials=credentials,
            folder=folder,
            project=project,
            ask=asking,
            on_local_state=reporter.on_local_state,
            redactor=redactor,
        )
        with _logging_to(reporter):
            return _run(agent_options, options["prompt"], schema, reporter, asking)
    except ApplicationError as error:
        if settings.value("output") == "json":
            write_answer(error_summary(str(error), error.exit_code))
        raise
    finally:
        screen.clear()
        if asking is not None:
            asking.close()


def _run(
    options: AgentOptions,
    given: str,
    schema: dict[str, Any] | None,
    reporter: Reporter,
    asking: TerminalAsk | None,
) -> int:
    settings, project = options.settings, options.project
    with standard_agent(options) as made:
        for warning in made.warnings:
            reporter.warn(warning)
        if project is not None and project.has_settings and not project.is_trusted:
            changed = "have changed since you trusted them" if project.was_changed else "are not used"
            reporter.note(
                f"{project.folder}/.swink/config.toml: its settings {changed}; look at them: swink config trust"
            )
        prompt = _prompt(given, reporter)
        run = HeadlessRun(made.agent, schema=schema, timeout=settings.value("timeout"), prepare=made.prepare)
        output = output_for(settings.value("output"), write_answer, made.redactor, lambda: run.interrupt("output"))
        outcome = _drive(made, run, prompt, output, reporter, asking)
    if outcome.is_answer and sys.stdout.isatty():
        reporter.make_room()
    output.finish(outcome)
    if output.error is not None:
        return _unread(output.error, reporter)
    reporter.finish(outcome)
    return int(outcome.exit_code)


def _drive(
    made: StandardAgent,
    run: HeadlessRun,
    prompt: str,
    output: Output,
    reporter: Reporter,
    asking: TerminalAsk | None,
) -> Outcome:
    def clean_up() -> None:
        if asking is not None:
            asking.restore()
        made.close()

    def say(text: str) -> None:
        os.write(2, f"\r\x1b[K{text}\n".encode() if os.isatty(2) else f"{text}\n".encode())

    with (
        made.agent.subscribe(reporter.on_event),
        made.agent.subscribe(output.on_event),
        interruptible(run.interrupt, clean_up, say=say),
    ):
        return asyncio.run(run.run(prompt))


def _unread(error: OSError, reporter: Reporter) -> int:
    """An answer that could not be written. That the reader left is no news to whoever made it leave."""
    if error.errno != errno.EPIPE and not isinstance(error, BrokenPipeError):
        reporter.error(f"the answer could not be written: {error.strerror or error}")
    discard_stdout()
    return int(ExitCode.FAILED)


# -- what comes in -------------------------------------------------------------------------------------------


def _check_stdout() -> None:
    """Who closed stdout is told before anything is spent on an answer."""
    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "stdout is closed")


def _folder(given: str | None) -> Path:
    try:
        folder = Path(given).expanduser() if given else Path.cwd()
    except OSError as error:
        raise UsageProblem(f"the current folder is gone: {error.strerror}") from error
    if not folder.is_dir():
        raise UsageProblem(f"{folder} is no folder (--cwd)")
    from swink_agent.sandbox.programs import importable

    sys.path[:] = importable(sys.path, [str(folder)])  # what is loaded later is not what the model wrote meanwhile
    return folder


def _schema(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    from swink_agent.core.structured import StructuredOutput

    try:
        schema = msgspec.json.decode(Path(path).expanduser().read_bytes(), type=dict[str, Any])
        StructuredOutput(schema, 0)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror or error} (--schema)") from error
    except ValueError as error:
        raise UsageProblem(f"{path} holds no JSON Schema that can be used: {error}") from error
    return schema


def _prompt(given: str, reporter: Reporter) -> str:
    """The prompt, with what was piped in."""
    piped = read_stdin(reporter.warn)
    if given == "-":
        prompt, piped = piped, ""
    else:
        prompt = _encodable(given)
    if not prompt.strip() and not piped.strip():
        raise UsageProblem(
            "the prompt is empty" if given != "-" else "the prompt is to come from stdin, and nothing came"
        )
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if prompt.strip() else piped


def _encodable(text: str) -> str:
    """Arguments that are not UTF-8 come with characters that cannot be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class _logging_to:  # noqa: N801 - it is used as a function
    """The library's warnings as warnings of ours, while it lasts."""

    def __init__(self, reporter: Reporter) -> None:
        self._handler = reporter.log_handler()
        self._log = logging.getLogger("swink_agent")

    def __enter__(self) -> None:
        self._log.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self._handler)
