"""Where attempts are made: the `Executor` protocol, and the one that makes them in this process.

Owns one attempt from its folder to its seal: files in, agent, scores, secrets out, files away. Which attempts are made,
and how many at once, is for `runner`. A task and an attempt are values that go through `encode_task`, `decode_task`,
`encode_attempt` and `decode_attempt`, so that an executor may as well have another machine do it.
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
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from swink_agent.core.agent import Agent
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentResult, Cost, Usage

from .audit import AuditTrail
from .cases import EvalCase
from .collector import TrajectoryCollector
from .evaluator import EvaluatorRegistry, is_ending
from .types import Attempt, EvalTask, Invocation, Versions

__all__ = ["CaseExecutor", "Executor", "MakeAgentFn", "Subject"]

log = logging.getLogger("swink_agent")

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NOTHING_APPLIES = "no evaluator applies: the case expects nothing, or names only evaluators that have nothing to say"


class Subject(Protocol):
    """What a factory may give in the place of an agent: one that has something to be closed, or another way to ask.

    `close()`, sync or async, is called when the attempt is over. `ask(message)`, a coroutine, is called for each of the
    case's messages in the place of `agent.prompt`; the events are those of `agent` either way.
    """

    @property
    def agent(self) -> Agent: ...


MakeAgentFn: TypeAlias = Callable[[EvalCase, Path], Agent | Subject | Awaitable[Agent | Subject]]
"""`(case, folder)` to an agent that nobody else uses; the folder is the case's own, with its files in it."""


class Executor(Protocol):
    """Makes an attempt, here or elsewhere: what comes back is what a `CaseExecutor` made of the task."""

    async def execute(self, task: EvalTask, /) -> Attempt: ...


class CaseExecutor:
    """Makes attempts in this process.

    `folder` is where each attempt gets a folder of its own that stays; without it, they are temporary. An attempt that
    takes longer than `timeout` seconds is ended and fails, and so does one whose scoring does. `redactor` masks the
    secrets in what an agent without one of its own did, and in why one could not be made.
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
        self._make_agent = make_agent
        self._redactor = redactor
        self._evaluators = EvaluatorRegistry.standard() if evaluators is None else evaluators
        self._folder = None if folder is None else folder.resolve()
        self._timeout = timeout
        self._temporary: Path | None = None
        """Where the folders are that do not stay: one of our own, for the system's is everybody's and slow."""
        self._serial = count(1)
        self._litter: list[Path] = []
        self._cleaner: asyncio.Task[None] | None = None

    async def execute(self, task: EvalTask, /) -> Attempt:
        """Makes the attempt. What goes wrong in it is in what it returns."""
        started = time.time_ns() // 1_000_000
        try:
            if self._folder is None:
                self._temporary_folder()  # here, where only one at a time can make it
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
        """Returns when no folder is left that is not to stay. Called by the runner at the end of a run."""
        while self._cleaner is not None and not self._cleaner.done():
            await asyncio.wait([self._cleaner])
        if self._temporary is not None:
            try:
                self._temporary.rmdir()
            except OSError:
                return  # another run of this executor is still at work in it
            self._temporary = None

    async def _clean(self) -> None:
        # Beside the attempts that follow: a disk can take longer to remove a folder than an agent to fill it.
        while self._litter:
            litter, self._litter = self._litter, []
            await asyncio.to_thread(_remove, litter)

    def _temporary_folder(self) -> Path:
        if self._temporary is None:
            # Resolved, for a name with a link in it is another one to a sandbox.
            self._temporary = Path(tempfile.mkdtemp(prefix="swink-evals-")).resolve()
            weakref.finalize(self, shutil.rmtree, self._temporary, True)
        return self._temporary

    def _prepare(self, task: EvalTask) -> Path:
        """The attempt's folder, with the files that the case wants in it."""
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
        versions, scores = Versions(), {}
        try:
            try:
                async with deadline:
                    subject = await self._made(case, folder)
                    agent = _agent_of(subject)
                    _instruct(agent, case)
                    versions = _versions(agent)
                    invocation = await _conversation(subject, agent, case, collector)
                error = invocation.error
            except (Exception, asyncio.CancelledError) as problem:
                if is_ending():
                    raise
                what = "the agent could not be made" if subject is None else "the agent could not be run"
                error = f"{what}: {type(problem).__name__}: {problem}"
                if deadline.expired():
                    error = f"the attempt took longer than {self._timeout} s and was ended"
                invocation = replace(collector.invocation(), error=error)
            if subject is not None:
                try:
                    async with asyncio.timeout(self._timeout):
                        scores = await self._evaluators.evaluate(case, invocation)
                    error = error if error is not None or scores else _NOTHING_APPLIES
                except TimeoutError:
                    error = error or f"scoring the attempt took longer than {self._timeout} s and was ended"
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
            raise TypeError(f"the factory gave a {type(made).__name__}, which is no Agent and has none")
        return cast("Agent | Subject", made)


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


async def _conversation(
    subject: Agent | Subject, agent: Agent, case: EvalCase, collector: TrajectoryCollector
) -> Invocation:
    """The case's messages, each when the one before is answered, until one ends in an error or is stopped."""
    ask: Callable[[str], Awaitable[Any]] = getattr(subject, "ask", None) or agent.prompt
    usage, cost, is_accounted = Usage(), Cost(), True
    with agent.subscribe(collector):
        for message in case.user_messages:
            result = await ask(message)
            if not isinstance(result, AgentResult):
                is_accounted = False
                continue
            usage, cost = usage + result.usage, cost + result.cost
            if result.error is not None or result.stopped_by is not None:
                break
    invocation = collector.invocation()
    # A result also counts replies that failed and were tried again, which no event tells of.
    return replace(invocation, usage=usage, cost=cost) if is_accounted else invocation


def _agent_of(subject: Agent | Subject) -> Agent:
    return subject if isinstance(subject, Agent) else subject.agent


def _instruct(agent: Agent, case: EvalCase) -> None:
    """Gives the agent the case's instructions, unless the factory has put them into its own."""
    prompt = agent.system_prompt
    if case.system_prompt and isinstance(prompt, str) and case.system_prompt not in prompt:
        agent.system_prompt = case.system_prompt


async def _close(subject: Agent | Subject) -> None:
    """Ends the agent's run, if one goes on still, and closes what stands behind it."""
    agent = _agent_of(subject)
    agent.abort()
    close: Any = getattr(subject, "close", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception:  # what was done is done, and scored
        log.exception("what stands behind %r could not be closed", agent)


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
    """The attempt without the secrets that the agent's redactor knows."""
    masked = redactor.redact_value(replace(attempt, case=None))
    try:
        case = redactor.redact_value(attempt.case)
    except ValueError:  # without its secret it is no case any more: a pattern, say, that held one
        case = None
    return replace(masked, case=case)
