"""Makes attempts: the `Executor` protocol, and `CaseExecutor`, which makes them in this process.

Owns one attempt: its folder and files, the agent, the scores, masking of secrets, the audit chain, the clean-up.
`runner` decides which attempts are made, and how many at once. Tasks and attempts can be sent to another machine with
`encode_task`, `decode_task`, `encode_attempt` and `decode_attempt`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import is_cancelled
from swink_agent.core.run.turn import wrapped_prompt
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentResult
from swink_agent.core.values.checks import a_kind, check_methods, check_seconds

from ..cases.cases import EvalCase
from ..errors import PROVIDER_FAILURES, NotMeasured
from ..scoring.evaluator import EvaluatorRegistry
from ..types import Attempt, EvalTask, Invocation, Versions
from .audit_chain import AuditTrail
from .collector import TrajectoryCollector

log = logging.getLogger("swink_agent")

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
NOTHING_APPLIES = "no evaluator applies: the case expects nothing, or names only evaluators that do not apply"


class Subject(Protocol):
    """A factory may return this instead of an agent, if something must be closed or messages are sent in another way.

    `close()`, sync or async, is called after the attempt. `ask(message)`, a coroutine, is called for each message of
    the case instead of `agent.prompt`; the events of `agent` are collected in both cases.
    """

    @property
    def agent(self) -> Agent: ...


MakeAgentFn: TypeAlias = Callable[[EvalCase, Path], Agent | Subject | Awaitable[Agent | Subject]]
"""`(case, folder)` to an agent that is not used elsewhere; the folder belongs to the case and has its files."""


class Executor(Protocol):
    """Makes an attempt, here or elsewhere, with the result of a `CaseExecutor`."""

    async def execute(self, task: EvalTask, /) -> Attempt: ...


class CaseExecutor:
    """Makes attempts in this process.

    Each attempt gets a folder in `folder`, which is kept; without it, the folders are temporary. An attempt that takes
    longer than `timeout` seconds is stopped and fails, and so does one whose scoring takes longer. `redactor` masks
    secrets in the attempts of agents without a redactor, and in the errors of the factory.
    """

    def __init__(
        self,
        make_agent: MakeAgentFn,
        evaluators: EvaluatorRegistry | None = None,
        *,
        folder: Path | None = None,
        timeout: float | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        if timeout is not None:
            check_seconds("timeout", timeout)
        if redactor is not None:
            check_methods("redactor", redactor, "a Redactor, or None", "redact")
        self._make_agent = make_agent
        self._redactor = redactor
        self._evaluators = EvaluatorRegistry.standard() if evaluators is None else evaluators
        self._folder = None if folder is None else folder.resolve()
        self._timeout = timeout
        self._temporary: Path | None = None
        """The parent of the temporary folders: the system's folder is shared and slow."""
        self._serial = count(1)
        self._litter: list[Path] = []
        self._cleaner: asyncio.Task[None] | None = None

    async def execute(self, task: EvalTask, /) -> Attempt:
        """Makes the attempt. Errors are part of the attempt that it returns."""
        started = time.time_ns() // 1_000_000
        try:
            if self._folder is None:
                self._temporary_folder()  # here, not in a thread, so that it is created once
            folder = await asyncio.to_thread(self._prepare, task) if task.case.setup else self._prepare(task)
        except OSError as error:
            failed = Attempt(task.number, error=f"the case's folder could not be made: {error}", started=started)
            return AuditTrail.sealed(task.set_id, task.case.id, replace(failed, case=task.case))
        try:
            return await self._attempt(task, folder, started)
        finally:
            if self._folder is None:
                self._litter.append(folder)
                if self._cleaner is None or self._cleaner.done():
                    self._cleaner = asyncio.create_task(self._clean())

    async def drain(self) -> None:
        """Waits until all temporary folders are deleted. Called by the runner at the end of a run."""
        while self._cleaner is not None and not self._cleaner.done():
            await asyncio.wait([self._cleaner])
        if self._temporary is not None:
            try:
                self._temporary.rmdir()
            except OSError:
                return  # another run of this executor still uses it
            self._temporary = None

    async def _clean(self) -> None:
        # In parallel to the next attempts: removing a folder can take longer than an attempt.
        while self._litter:
            await asyncio.to_thread(shutil.rmtree, self._litter.pop(), ignore_errors=True)

    def _temporary_folder(self) -> Path:
        if self._temporary is None:
            # Resolved, because a sandbox sees a path through a link as another path.
            self._temporary = Path(tempfile.mkdtemp(prefix="swink-evals-")).resolve()
            weakref.finalize(self, shutil.rmtree, self._temporary, True)
        return self._temporary

    def _prepare(self, task: EvalTask) -> Path:
        slug = _NO_NAME.sub("-", task.case.id)[:40]
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{slug}.{task.number}-", dir=self._folder))
        else:
            folder = self._temporary_folder() / f"{slug}.{task.number}-{next(self._serial)}"
            folder.mkdir(0o700)
        for path, content in task.case.setup.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8", newline="")
        return folder

    async def _attempt(self, task: EvalTask, folder: Path, started: int) -> Attempt:
        case = task.case
        collector = TrajectoryCollector(folder)
        subject: Agent | Subject | None = None
        deadline = asyncio.timeout(self._timeout)
        versions, scores, is_measured = Versions(), {}, True
        try:
            try:
                async with deadline:
                    subject = await self._made(case, folder)
                    agent = _agent_of(subject)
                    if case.system_prompt:
                        agent.system_prompt = wrapped_prompt(agent.system_prompt, partial(_with, case.system_prompt))
                    versions = _versions(agent)
                    invocation = await _conversation(subject, agent, case, collector)
                error = invocation.error or _waiting(agent)
                is_measured = invocation.error_kind not in PROVIDER_FAILURES
            except (Exception, asyncio.CancelledError) as problem:
                if is_cancelled():
                    raise
                what = "the agent could not be made" if subject is None else "the agent could not be run"
                error = f"{what}: {type(problem).__name__}: {problem}"
                is_measured = getattr(problem, "kind", None) not in PROVIDER_FAILURES
                if deadline.expired():
                    error = f"the attempt took longer than {self._timeout} s and was stopped"
                invocation = replace(collector.invocation(), error=error)
            if subject is not None and is_measured:
                try:
                    async with asyncio.timeout(self._timeout):
                        scores = await self._evaluators.evaluate(case, invocation)
                    error = error if error is not None or scores else NOTHING_APPLIES
                except TimeoutError:
                    error = error or f"scoring the attempt took longer than {self._timeout} s and was stopped"
                except NotMeasured as problem:
                    error, is_measured = str(problem), False
        finally:
            if subject is not None:
                await _close(subject)
        attempt = Attempt(
            number=task.number,
            scores=scores,
            error=error,
            usage=invocation.usage,
            cost=invocation.cost,
            turns=invocation.turns,
            calls=len(invocation.tool_calls),
            seconds=invocation.seconds,
            stop_reason=invocation.stop_reason,
            started=started,
            versions=versions,
            trajectory=invocation,
            case=case,
            is_measured=is_measured,
        )
        redactor = None if subject is None else _agent_of(subject).redactor
        redactor = self._redactor if redactor is None else redactor
        if redactor is not None:
            attempt = await asyncio.to_thread(_redacted, attempt, redactor)
        return AuditTrail.sealed(task.set_id, case.id, attempt)

    async def _made(self, case: EvalCase, folder: Path) -> Agent | Subject:
        made: Any = self._make_agent(case, folder)
        if inspect.isawaitable(made):
            made = await made
        if not isinstance(made, Agent) and not isinstance(getattr(made, "agent", None), Agent):
            raise TypeError(f"the factory returned {a_kind(made)}, which is not an Agent and has no `agent`")
        return cast("Agent | Subject", made)


async def _conversation(
    subject: Agent | Subject, agent: Agent, case: EvalCase, collector: TrajectoryCollector
) -> Invocation:
    """Sends the case's messages, each after the last answer, until a run fails or is stopped."""
    ask: Callable[[str], Awaitable[Any]] = getattr(subject, "ask", None) or agent.prompt
    with agent.subscribe(collector):
        for message in case.user_messages:
            result = await ask(message)
            if isinstance(result, AgentResult) and (result.error is not None or result.stopped_by is not None):
                break
            if agent.pending:
                break
    return collector.invocation()


def _waiting(agent: Agent) -> str | None:
    """Why a run that waits for answers has not passed; `None` if nothing waits."""
    if not (pending := agent.pending):
        return None
    names = ", ".join(f"{call.name} ({call.call_id})" for call in pending)
    return f"the run waits for an answer to {names}: an evaluation needs an agent that decides at once"


def _agent_of(subject: Agent | Subject) -> Agent:
    return subject if isinstance(subject, Agent) else subject.agent


async def _close(subject: Agent | Subject) -> None:
    """Aborts the agent's run, if there is one, and closes the subject."""
    agent = _agent_of(subject)
    agent.abort()
    close: Any = getattr(subject, "close", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception:  # the attempt is already scored
        log.exception("the subject of %r could not be closed", agent)


def _with(wanted: str, prompt: str) -> str:
    """The agent's instructions if the factory included those of the case, else those of the case."""
    return prompt if wanted in prompt else wanted


def _versions(agent: Agent) -> Versions:
    import swink_agent

    prompt = agent.system_prompt
    tools = {
        tool.name: _digest(msgspec.json.encode([tool.description, tool.parameters_schema], order="deterministic"))
        for tool in agent.tools
    }
    return Versions(
        model=str(agent.model),
        system_prompt=_digest(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else "",
        tools=tools,
        swink_agent=swink_agent.__version__,
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _redacted(attempt: Attempt, redactor: Redactor) -> Attempt:
    masked = redactor.redact_value(replace(attempt, case=None))
    try:
        case = redactor.redact_value(attempt.case)
    except ValueError:  # the masked case is invalid: a pattern, for example, that contained a secret
        case = None
    return replace(masked, case=case)
