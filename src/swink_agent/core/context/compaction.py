"""Runs the transforms, which decide what part of the history is sent, and the conversion of what they leave.

A transform is a function of messages. `CompactionContext.current()` gives it facts that the messages do not contain:
whether the user asked for the compaction, the agent's model, the history. It also lets the transform ask a model, whose
usage counts as the run's. Functions that the transform calls see it too, so transforms can be combined. `loop` and
`reply` decide when transforms run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_
from typing import Any, cast

import msgspec

from ..cancel import CancellationToken
from ..config import AgentLoopConfig
from ..errors import Aborted, AgentError, as_agent_error
from ..events import CompactionReport, ContextCompacted
from ..output import unheard
from ..policy import PolicyContext, Stop
from ..providers import ProviderStreamFn
from ..retry import DefaultRetryStrategy
from ..run.consulting import sees_every_request, tell_run_over
from ..run.state import Run, RunLoopFn, RunSetup
from ..run.transcript import Transcript
from ..stream import StreamFn, StreamOptions
from ..tool import Toolbox
from ..types import (
    LLM_MESSAGES,
    AgentMessage,
    AssistantMessage,
    Cost,
    CustomMessage,
    LlmMessage,
    ModelSpec,
    ThinkingLevel,
    Usage,
    UserMessage,
)
from ..values.checks import a_kind
from ..waits import Interrupted
from .context import default_convert_to_llm, estimate_tokens, start_of_waiting

_CURRENT: ContextVar[CompactionContext | None] = ContextVar("swink_agent_compaction", default=None)


class CompactionContext:
    """The run that a compaction belongs to, valid for one call of the transforms.

    `is_on_demand` is set if `Agent.compact` requests the compaction, with its `instructions`, even below the budget.
    Replies before the message `fresh_from` were made from another context. `usage` and `cost` are those of `ask`; the
    run's totals include them.
    """

    def __init__(self, run: Run, *, is_on_demand: bool = False, instructions: str | None = None) -> None:
        self._run = run
        self._fixed: UserMessage | None = None
        self._is_over = False
        self.is_on_demand = is_on_demand
        self.instructions = instructions
        self.fresh_from = run.transcript.fresh_from
        self.usage = Usage()
        self.cost = Cost()
        self.has_summary = False
        """Whether a transform has put a new summary into the context."""

    def __repr__(self) -> str:
        return f"<CompactionContext of {self.model}{', on demand' if self.is_on_demand else ''}>"

    @classmethod
    def current(cls) -> CompactionContext | None:
        """The context of the transform that is running; `None` if it was called outside a run."""
        return _CURRENT.get()

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Makes this the current context."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def close(self) -> None:
        """Marks the end of the transforms: their usage is reported, and side requests that end later do not count."""
        self._is_over = True

    @classmethod
    def alone(cls, model: ModelSpec, loop: RunLoopFn, stream_fn: StreamFn | None = None) -> CompactionContext:
        """Makes a context without a run, for a transform that is called directly. Needs an event loop."""
        config = AgentLoopConfig(model=model, stream_fn=stream_fn or ProviderStreamFn())
        return cls(_side_run(config, "", CancellationToken(), loop))

    @property
    def model(self) -> ModelSpec:
        """The agent's model."""
        return self._run.config.model

    @property
    def max_tokens(self) -> int | None:
        """The run's limit for the tokens of a reply, side requests included; `None` without a limit."""
        return self._run.config.stream_options.max_tokens

    @property
    def history(self) -> Sequence[AgentMessage]:
        """The whole history, including messages that earlier transforms removed from the context; empty without a run.

        It ends before a reply whose calls wait for answers: that is not compacted.
        """
        history = self._run.transcript.history
        until = start_of_waiting(history)
        return history if until == len(history) else history[:until]

    def covers(self, summary: AgentMessage, count: int) -> None:
        """Notes that a new summary covers the first `count` messages of the history."""
        self.has_summary = True
        self._run.transcript.covered = summary, count

    def covered_by(self, summary: AgentMessage) -> int | None:
        """How many messages of the history a summary covers; `None` unless `covers` noted this summary last."""
        covered = self._run.transcript.covered
        return covered[1] if covered is not None and covered[0] is summary else None

    @property
    def is_refused(self) -> bool:
        """Whether the run's journal failed: the run ends, and the transform must change nothing."""
        return self._run.refusal is not None

    def redact(self, text: str) -> str:
        """Masks the run's secrets in the text."""
        return self._run.entered(text)

    def sizes(self, messages: Sequence[AgentMessage], count: Callable[[AgentMessage], int]) -> list[int]:
        """Counts the tokens of each message, and reuses the counts of earlier turns."""
        transcript = self._run.transcript
        counter, known, sizes = transcript.counted or (None, (), ())
        if counter != count or len(known) > len(messages) or not all(map(is_, known, messages)):
            known, sizes = (), ()
        sizes = [*sizes, *map(count, messages[len(known) :])]
        transcript.counted = count, tuple(messages), tuple(sizes)
        return sizes

    def fixed(self, count: Callable[[AgentMessage], int]) -> int:
        """Counts the tokens of the system prompt and the tools, which every request contains."""
        if self._fixed is None:
            tools = [(tool.name, tool.description, tool.parameters_schema) for tool in self._run.toolbox.tools]
            self._fixed = UserMessage(self._run.instructions + (msgspec.json.encode(tools).decode() if tools else ""))
        return count(self._fixed)

    async def ask(
        self,
        prompt: str,
        *,
        system_prompt: str = "",
        model: ModelSpec | None = None,
        stream_fn: StreamFn | None = None,
        max_tokens: int | None = None,
    ) -> AssistantMessage:
        """Asks a model, by default the agent's, for one reply without tools and without retries.

        The run's key hook, redactor and abort apply, the usage counts as the run's, and the policies that see every
        call (`on_every_request`) are asked as for a separate run. Raises an `AgentError`: that of the request,
        `PolicyStopped`, or the error of the run's journal (`is_refused`).
        """
        await self._make_durable()
        # A child token: cancelling only the side request, for example by a time limit around it, leaves the run alone.
        config, token = self._config(model or self.model, stream_fn, max_tokens), self._run.cancel.child()
        side = _side_run(config, system_prompt, token, self._run.loop)
        try:
            result = await side.loop(side, (UserMessage(prompt),))
        finally:
            if not self._is_over:
                self.usage += side.usage
                self.cost += side.cost
                self._run.accounts.count(side.usage, side.cost)
        if result.exception is not None or result.stopped_by is None or result.stopped_by.policy != _OneReply.name:
            result.raise_for_error()
        return next(message for message in reversed(result.messages) if isinstance(message, AssistantMessage))

    async def _make_durable(self) -> None:
        """Waits for the run's journal: a model is asked only when all earlier entries are durable."""
        recorder = self._run.transcript.recorder
        if recorder is None:
            return
        try:
            await recorder.durable()
        except Exception as error:
            self._run.refusal = as_agent_error(error, "the journal")
            raise self._run.refusal from error

    def _config(self, model: ModelSpec, stream_fn: StreamFn | None, max_tokens: int | None) -> AgentLoopConfig:
        """Makes the configuration of the side request, with only the settings of the run that are listed here."""
        own = self._run.config
        is_same = model.provider == own.model.provider
        if stream_fn is None:
            stream_fn = own.stream_fn if is_same else ProviderStreamFn()
        if self.max_tokens is not None:
            max_tokens = min(max_tokens or self.max_tokens, self.max_tokens)
        # Key, headers and extra fields are not sent to another provider.
        options = own.stream_options if is_same else StreamOptions(timeout=own.stream_options.timeout)
        options = msgspec.structs.replace(options, max_tokens=max_tokens, tool_choice="auto", cache="none")
        return AgentLoopConfig(
            model=msgspec.structs.replace(model, thinking_level=ThinkingLevel.OFF),
            stream_fn=stream_fn,
            stream_options=options,
            retry_strategy=DefaultRetryStrategy(max_attempts=1),  # the callers have a fallback
            get_api_key=own.get_api_key,
            pre_turn_policies=[*filter(sees_every_request, own.pre_turn_policies)],
            post_turn_policies=[*filter(sees_every_request, own.post_turn_policies), _OneReply()],
            masks=own.masks,
            redactor=self._run.redactor,
            sleep=own.sleep,
        )


class _OneReply:
    """Ends the side request after its reply, even if the reply calls tools: there are none."""

    name = "one reply"

    def post_turn(self, ctx: PolicyContext, /) -> Stop:
        return Stop()


def _side_run(config: AgentLoopConfig, system_prompt: str, token: CancellationToken, loop: RunLoopFn) -> Run:
    return Run(RunSetup(config, Toolbox(), system_prompt), Transcript(), token, unheard, loop)


# -- the transforms of a run -----------------------------------------------------------------------------------


async def transform_context(
    run: Run, *, overflow: bool, compaction: CompactionContext | None = None
) -> CompactionReport | None:
    """Runs the transforms, which change the context that is sent from now on; returns a report, or `None` for no
    change."""
    if not run.config.has_transform:
        return None
    if compaction is None:
        compaction = CompactionContext(run)
    report: CompactionReport | None = None
    try:
        report = await _transformed(run, overflow, compaction)
    finally:
        compaction.close()
        if report is None or not report.is_told:
            run.tell_usage(compaction.usage, compaction.cost, "compaction")
    return report


async def _transformed(run: Run, overflow: bool, compaction: CompactionContext) -> CompactionReport | None:
    config, given = run.config, run.transcript.context
    # Calls wait only in a compaction on demand: any other run has closed or answered them.
    until = start_of_waiting(given) if compaction.is_on_demand else len(given)
    waiting = given[until:]
    start: Sequence[AgentMessage] = given[:until] if waiting else given
    messages = start
    # On demand, a transform must remove something, so it is called as after an overflow.
    must_shrink = overflow or compaction.is_on_demand
    with compaction.at_work():
        for transform in (config.async_transform_context, config.transform_context):
            if transform is not None:
                returned = await run.supervisor.call(transform, list(messages), must_shrink)
                if returned is not None and not _are_same(returned, messages):
                    messages = _checked(returned)
                    compaction.fresh_from = len(messages)
    if messages is start:
        return None
    messages = [*messages, *waiting] if waiting else messages
    dropped, before, after = max(0, len(given) - len(messages)), estimate_tokens(given), estimate_tokens(messages)
    spent = compaction.usage, compaction.cost
    report = CompactionReport(dropped, before, after, overflow, *spent, compaction.has_summary)
    if not run.transcript.adopt(messages):
        return None
    if run.transcript.recorder is not None:
        run.transcript.recorder.context_replaced(messages, report)
    if report.is_told:
        run.emit(ContextCompacted(report))
    return report


def _are_same(some: Any, others: Sequence[AgentMessage]) -> bool:
    return hasattr(some, "__len__") and len(some) == len(others) and all(map(is_, some, others))


def _checked(returned: object) -> Sequence[AgentMessage]:
    """Returns the messages that a transform returned. Raises `TypeError` if they are not a list of messages."""
    if not isinstance(returned, Sequence) or isinstance(returned, (str, bytes)):
        raise TypeError(f"it returned {a_kind(returned)}, which is not a list of messages")
    for item in cast("Sequence[object]", returned):
        if type(item) not in LLM_MESSAGES and not isinstance(item, CustomMessage):
            raise TypeError(f"it returned a list with {a_kind(item)}, which is not a message")
    return cast("Sequence[AgentMessage]", returned)


async def convert_context(run: Run) -> None:
    """Converts the new messages of the context. Raises `TypeError` if the hook returns what is not a message."""
    convert, converted = run.config.convert_to_llm, list[LlmMessage]()
    if convert is default_convert_to_llm:
        run.transcript.convert_by_default()
        return
    for message in run.transcript.unconverted():
        llm_message = await run.supervisor.call(convert, message)
        if llm_message is None:
            continue
        if type(llm_message) not in LLM_MESSAGES:
            raise TypeError(
                f"it returned {a_kind(llm_message)}, which is not a message for a model: return a UserMessage, an "
                "AssistantMessage or a ToolResultMessage, or None to leave the message out"
            )
        converted.append(llm_message)
    run.transcript.convert(converted)


async def compact_on_demand(run: Run, instructions: str | None) -> CompactionReport | None:
    """Runs the transforms alone, for `Agent.compact`. Raises an `AgentError`, such as `Aborted`."""
    prompt = run.setup.system_prompt
    run.instructions = prompt if isinstance(prompt, str) else ""
    compaction = CompactionContext(run, is_on_demand=True, instructions=instructions)
    if run.transcript.recorder is not None:
        run.transcript.recorder.redactor = run.redactor
    report: CompactionReport | None = None
    problem: AgentError | None = None
    try:
        report = await transform_context(run, overflow=False, compaction=compaction)
        if report is not None:
            await run.make_durable()
    except Interrupted:
        problem = Aborted()
    except Exception as error:
        problem = as_agent_error(error, "transform_context")
    finally:
        tell_run_over(run)
        run.close()
        if report is None:
            _record_use(run, compaction)
    if run.supervisor.cancelled_from_outside is not None:
        raise asyncio.CancelledError(*run.supervisor.cancelled_from_outside)
    if problem is not None:
        raise problem
    return report


def _record_use(run: Run, compaction: CompactionContext) -> None:
    """Records the usage of a compaction that removed nothing, since no end of a run reports it."""
    transcript = run.transcript
    if transcript.recorder is not None and (compaction.usage != Usage() or compaction.cost != Cost()):
        size = estimate_tokens(transcript.context)
        report = CompactionReport(0, size, size, usage=compaction.usage, cost=compaction.cost)
        transcript.recorder.context_replaced(transcript.context if transcript.is_compacted else (), report)
