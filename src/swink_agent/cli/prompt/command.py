"""`swink -p`: one prompt, the standard agent, an answer.

Finds mistakes before anything is spent or run, and makes sure that stdout gets the promised output. The run itself is
in `app.runs.headless`, messages on stderr in `reporter`, files and stdin in `inputs`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.agent.prompt_commands import filled
from swink_agent.app.agent.skills import with_skill
from swink_agent.app.agent.standard import StandardAgent
from swink_agent.app.errors import ExitCode
from swink_agent.app.runs.answers import Answers, answers_for, check_approved, how_to_answer, missing_tool
from swink_agent.app.runs.headless import HeadlessRun, Outcome, PromptFn
from swink_agent.app.runs.output import OneOutcome, output_for
from swink_agent.app.runs.sessions import RunSession
from swink_agent.app.trust.folder_rules import FolderRules
from swink_agent.app.trust.trust import Project, TrustStore
from swink_agent.approvals.display import safe_display
from swink_agent.core.agent.agent import Prompt
from swink_agent.core.approval import PendingCall
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.context.context import is_answered
from swink_agent.core.errors import ErrorKind

from ..process.interrupts import interruptible, wakeable
from ..process.unanswered import UnansweredOutput
from ..screen.screen import Screen, discard_stdout, write_answer
from .asking import TerminalAsk
from .inputs import PromptInputs
from .reporter import Loudness, Reporter

_UNATTENDED = "nobody can be asked here. {rules}To open a host or a folder to all commands: --allow-host, --add-dir"
_RULES = "To allow such calls: {auto}--approve all, or --allow 'bash: pytest *'. "
_AUTO = "--approve auto (those that can be undone), "


def run_prompt(options: dict[str, Any], unanswered: UnansweredOutput) -> int:
    """Runs the prompt and returns the exit code. Raises `ApplicationError` for problems before the run."""
    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # before anything is spent on an answer
        raise OSError(errno.EBADF, "stdout is closed")
    return _Prompt(options, unanswered).run()


class _Prompt:
    """One prompt, from the command line to the agent's answer."""

    def __init__(self, options: dict[str, Any], unanswered: UnansweredOutput) -> None:
        self._unanswered = unanswered
        self._options = options
        self._interrupts = _Interrupts(lambda: unanswered.answer(KeyboardInterrupt()))
        self._opening = Opening(OpeningOptions.of(options))
        self._settings = self._opening.settings
        unanswered.format_name = self._settings.value("output")
        if options["command"] is not None:
            options["prompt"] = filled(options["command"], options["prompt"] or "", self._opening.project)
        skill = "" if options["skill"] is None else with_skill(options["skill"], "", self._opening.project)
        self._inputs = PromptInputs(options["prompt"], images=options["image"], files=options["file"], before=skill)
        self._schema = self._inputs.schema(options["schema"])
        self._screen = Screen(sys.stderr)
        self._loudness: Loudness = "verbose" if options["verbose"] else "quiet" if options["quiet"] else "normal"

    def run(self) -> int:
        session = self._opening.session()
        try:
            with session:
                return self._run_in(session)
        finally:
            self._unanswered.session = session.id

    def _run_in(self, session: RunSession) -> int:
        given = self._options["answer"]
        answers = answers_for(given, session.pending) if given else None
        redactor = self._opening.redactor(session)
        mode = self._settings.value("approve")
        asks = mode != "none"
        asking = TerminalAsk.open(self._screen, redactor.redact, self._keep_rule) if asks else None
        hint = _unattended(mode) if asks and asking is None else ""
        reporter = Reporter(self._screen, redactor, self._loudness, rejection_hint=hint)
        try:
            with reporter.hearing_log(), self._interrupts.handled(asking):
                made = self._opening.agent(session, redactor, ask=asking, on_local_state=reporter.on_local_state)
                return self._run(made, session, reporter, answers)
        finally:
            self._screen.clear()
            if asking is not None:
                asking.close()
            if (warning := self._opening.telemetry.close()) is not None:
                reporter.warn(warning)

    def _run(self, made: StandardAgent, session: RunSession, reporter: Reporter, answers: Answers | None) -> int:
        with made:
            self._unanswered.model = made.agent.model
            for warning in check_approved(answers, session.pending, made) if answers else ():
                reporter.warn(warning)
            session.attach(made.agent)
            _tell_first(made, self._opening.project, session, reporter)
            prompt = None if answers else self._prompt(made, reporter)
            run = HeadlessRun(
                made.agent,
                schema=self._schema,
                answers=answers,
                timeout=self._settings.value("timeout"),
                prepare=made.prepare,
            )
            written_as = self._settings.value("output")
            output = OneOutcome(output_for(written_as, write_answer, made.redactor, lambda: run.interrupt("output")))
            self._interrupts.attach(
                run, made, lambda: output.finish(structs.replace(run.as_it_stands(), session=session.id))
            )
            outcome = self._drive(made, run, prompt, output, reporter)
        # Before the outcome is written: a reader of the outcome may continue the session at once.
        problem = session.close()
        if problem and problem != outcome.error:
            reporter.warn(problem)
        outcome = structs.replace(outcome, session=session.id)
        if outcome.is_answer and sys.stdout.isatty():
            reporter.make_room()
        output.finish(outcome)
        self._unanswered.is_answered = True
        if output.error is not None:
            return _unread(output.error, reporter)
        reporter.finish(outcome)
        provider = made.agent.model.provider
        if outcome.error_kind is ErrorKind.AUTH and self._opening.credentials.has_key(provider):
            refusal = self._opening.credentials.refusal(provider)
            reporter.note(f"{refusal}; `swink keys set {provider}` stores another")
        if outcome.pending:
            self._offer_answers(outcome.pending, made, session.id, reporter)
        elif session.id is not None and (self._screen.is_watched or outcome.exit_code != ExitCode.DONE):
            needs_prompt = is_answered(made.agent.messages)
            names = (session.id, session.short_id or session.id)
            reporter.offer("to continue later:", *[self._resuming(name, needs_prompt) for name in names])
        return int(outcome.exit_code)

    def _keep_rule(self, rule: str) -> str:
        return FolderRules().keep(self._opening.folder, rule)[0]

    def _prompt(self, made: StandardAgent, reporter: Reporter) -> PromptFn:
        """The function that reads the prompt. If calls wait, it also warns that the prompt rejects them."""
        read = self._inputs.prompt(made.agent.model, reporter.warn, reporter.note)
        waiting = len(made.agent.pending)
        if not waiting:
            return read

        def read_and_warn(cancel: CancellationToken) -> Prompt | None:
            prompt = read(cancel)
            if prompt is not None:
                are = "1 call that waits for an answer is" if waiting == 1 else f"{waiting} calls that wait are"
                reporter.warn(f"{are} rejected, because there is a prompt and no answer (--answer)")
            return prompt

        return read_and_warn

    def _offer_answers(
        self, pending: Sequence[PendingCall], made: StandardAgent, session_id: str | None, reporter: Reporter
    ) -> None:
        """Shows how the calls that wait can be answered."""
        for name in dict.fromkeys([missing for call in pending if (missing := missing_tool(call, made))]):
            reporter.note(f"there is no tool {safe_display(name, 60)} here: its application continues the session")
        here = [call for call in pending if not missing_tool(call, made)]
        if session_id is not None and (command := how_to_answer(here, session_id, cwd=self._options["cwd"])):
            reporter.offer("to approve the calls that wait:", command)

    def _resuming(self, session_id: str, needs_prompt: bool) -> str:
        """The command line that continues the session from this folder."""
        folder = self._options["cwd"]
        where = f" -C {shlex.quote(folder)}" if folder else ""
        prompt = ' "…"' if needs_prompt else ""
        return f"swink -p{prompt}{where} --resume {session_id}"

    @staticmethod
    def _drive(
        made: StandardAgent, run: HeadlessRun, prompt: PromptFn | None, output: OneOutcome, reporter: Reporter
    ) -> Outcome:
        async def run_all() -> Outcome:
            try:
                outcome = await run.run(prompt)
                if made.tasks is not None:  # here, so that their end is among the events
                    await asyncio.to_thread(made.tasks.close)
                return outcome
            finally:
                await made.finish()

        with made.agent.subscribe(reporter.on_event), made.agent.subscribe(output.on_event):
            return asyncio.run(wakeable(run_all()))


class _Interrupts:
    """Stops the run, or the preparations for it: a signal may arrive before the run exists."""

    def __init__(self, last_words: Callable[[], None]) -> None:
        self._last_words = last_words
        """Writes the promised outcome to stdout if the run did not get that far."""
        self._run: HeadlessRun | None = None
        self._made: StandardAgent | None = None
        self._asking: TerminalAsk | None = None
        self._came = False

    def handled(self, asking: TerminalAsk | None) -> Any:
        self._asking = asking
        return interruptible(self._stop, self._clean_up, last_words=self._speak_last, is_told=True)

    def attach(self, run: HeadlessRun, made: StandardAgent, last_words: Callable[[], None]) -> None:
        self._run, self._made, self._last_words = run, made, last_words
        if self._came:
            run.interrupt()

    def _stop(self) -> None:
        self._came = True
        if self._run is not None:
            self._run.interrupt()

    def _speak_last(self) -> None:
        self._last_words()

    def _clean_up(self) -> None:
        if self._asking is not None:
            self._asking.restore()
        if self._made is not None:
            self._made.close()


def _unattended(mode: str) -> str:
    """Why a call was not approved where nobody can be asked, and the options that help."""
    rules = "" if mode == "all" else _RULES.format(auto="" if mode == "auto" else _AUTO)
    return _UNATTENDED.format(rules=rules)


def _tell_first(made: StandardAgent, project: Project | None, session: RunSession, reporter: Reporter) -> None:
    """Shows the warnings and notes that come before the run."""
    for warning in (*made.warnings, *([session.warning] if session.warning else [])):
        reporter.warn(warning)
    reporter.mode_note = made.approval_mode.advice
    if session.came_from:
        reporter.note(f"the session began in {session.came_from} and stays listed there; it continues in this folder")
    if project is not None and (text := project.what_is_unused):
        from ..commands.trusting import what_changed  # on use: most projects have not changed

        reporter.note(f"{text}; look at it: swink config trust")
        for change in what_changed(project, TrustStore()):
            reporter.note(change)


def _unread(error: OSError, reporter: Reporter) -> int:
    """Reports an answer that could not be written. A closed pipe is not reported."""
    if error.errno != errno.EPIPE and not isinstance(error, BrokenPipeError):
        reporter.error(f"the answer could not be written: {error.strerror or error}")
    discard_stdout()
    return int(ExitCode.FAILED)
