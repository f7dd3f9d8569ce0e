"""The agent: a model, its tools and its history, and the ways to run, steer, stop and observe it.

Owns the state between runs. What happens in a run is in `loop`. The other files of this package are the agent's parts:
`claim` (one run at a time), `queues`, `history`, `recording`, `subscriptions`, `arguments` (what an application gives),
`value_runs` (running for a value) and `sync` (running from code that is not async).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, SupportsIndex, Unpack

from msgspec import Struct
from msgspec.structs import replace

from ..approval import ApprovalMode, ApproveFn, PendingCall
from ..cancel import running_loop
from ..checks import is_function, is_not
from ..config import (
    AgentLoopConfig,
    ConvertToLlmFn,
    GetApiKeyFn,
    MessageProvider,
    SleepFn,
    SystemPrompt,
    ToolExecution,
    TransformContextFn,
)
from ..context.context import cannot_continue, default_convert_to_llm, is_answered, is_waiting
from ..errors import Aborted, AgentError, AlreadyRunning, NoMessages, ProviderMismatch
from ..events import AgentEvent, CompactionReport
from ..policy import Policy, PostLoopPolicy, PostTurnPolicy, PreDispatchPolicy, PreTurnPolicy
from ..retry import DefaultRetryStrategy, RetryStrategy
from ..run.event_stream import Channel, EventStream
from ..run.transcript import Transcript
from ..stream import StreamFn, StreamOptions
from ..tool import AgentTool, OnSteer, Toolbox
from ..turn import Tools, TurnTools, as_toolbox, check_prompt
from ..types import (
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Cost,
    ModelSpec,
    ThinkingLevel,
    Usage,
    as_prompts,
)
from ..values import hints
from ..values.parameters import Deps
from ..values.value import copy_json
from .arguments import Prompt, as_history, as_model, check_provider, policies_by_slot, stream_fns
from .claim import Claim, Claims
from .given import (
    Given,
    OverrideOptions,
    PromptOptions,
    RunOptions,
    check_given,
    config_of,
    given_to,
    overriding,
    prompts_of,
)
from .history import History
from .queues import MessageQueues, QueueMode
from .subscriptions import Subscription, Subscriptions
from .value_runs import PromptOrAnswers, ValueRuns

__all__ = ["Agent", "Prompt"]

_NOTHING = Usage(), Cost()

log = logging.getLogger("swink_agent")


class _Order(Struct):
    """What a caller wants of one run."""

    prompts: tuple[AgentMessage, ...] | None = None
    """`None` continues from the history."""
    request: hints.StructuredOutput | None = None
    """The value that the model must give, if the caller wants one."""
    given: Given | None = None
    """What holds for this run alone, in place of the agent's own values."""
    answers: Mapping[str, hints.Answer] | None = None
    """The answers to calls that wait, if the caller brings any."""
    view: hints.ViewFn | None = None
    """What the reader of a stream is given instead of the events."""


class Agent(ValueRuns[Deps]):
    """An agent: a model, its tools, its history, and the ways to run, steer and stop it.

    One run at a time. Steering, queues, `abort`, `subscribe`, `wait_for_idle` and `reset` are safe from any thread.
    """

    __slots__ = (
        "__weakref__",
        "_claims",
        "_config",
        "_initial",
        "_last_error",
        "_last_result",
        "_queues",
        "_run",
        "_spent",
        "_subscriptions",
        "_toolbox",
        "_transcript",
        "state",
        "system_prompt",
    )

    def __init__(
        self,
        model: str | ModelSpec,
        *,
        system_prompt: SystemPrompt[Deps] = "",
        tools: Tools[Deps] | None = None,
        deps: Deps | None = None,
        messages: Iterable[str | AgentMessage] = (),
        stream_fn: StreamFn | None = None,
        stream_options: StreamOptions | None = None,
        policies: Sequence[Policy] = (),
        approve: ApproveFn | None = None,
        approval_mode: ApprovalMode | str = ApprovalMode.WHERE_REQUIRED,
        retry_strategy: RetryStrategy | None = None,
        fallbacks: Sequence[tuple[str | ModelSpec, StreamFn | None]] = (),
        convert_to_llm: ConvertToLlmFn | None = None,
        async_transform_context: TransformContextFn | None = None,
        transform_context: TransformContextFn | None = None,
        get_api_key: GetApiKeyFn | None = None,
        message_provider: MessageProvider | None = None,
        pre_turn_policies: Sequence[PreTurnPolicy] = (),
        pre_dispatch_policies: Sequence[PreDispatchPolicy] = (),
        post_turn_policies: Sequence[PostTurnPolicy] = (),
        post_loop_policies: Sequence[PostLoopPolicy] = (),
        tool_execution: ToolExecution = "concurrent",
        steering_mode: QueueMode = "one_at_a_time",
        follow_up_mode: QueueMode = "one_at_a_time",
        state: MutableMapping[str, Any] | None = None,
        execution_root: hints.Path | None = None,
        redactor: hints.Redactor | None = None,
        sleep: SleepFn | None = None,
    ) -> None:
        self._claims = Claims()
        self._run: hints.Run | None = None
        self._subscriptions = Subscriptions(self._claims.lock)
        self._spent = _NOTHING
        """Usage and cost of all runs that are over."""
        self._last_error: str | None = None
        self._last_result: AgentResult | None = None
        self._queues = MessageQueues(steering_mode, follow_up_mode, message_provider, self._claims.lock)
        self._toolbox = as_toolbox(tools)
        history = as_history(messages)
        self.system_prompt: SystemPrompt[Deps] = system_prompt
        """The instructions: a string, or a function that each turn calls once."""
        if state is not None and not hasattr(state, "keys"):
            raise is_not("state", state, "a mapping, such as a dict")
        self.state: MutableMapping[str, Any] = {} if state is None else state
        """JSON data that tools share and policies can read."""
        check_prompt(system_prompt)
        if stream_fn is not None and not is_function(stream_fn):
            raise is_not("stream_fn", stream_fn, "a function")
        spec = as_model(model)
        ask, others = stream_fns(spec, stream_fn, fallbacks)
        self._config = AgentLoopConfig(
            model=spec,
            stream_fn=ask,
            stream_options=stream_options or StreamOptions(),
            retry_strategy=retry_strategy or DefaultRetryStrategy(),
            fallbacks=others,
            convert_to_llm=convert_to_llm or default_convert_to_llm,
            async_transform_context=async_transform_context,
            transform_context=transform_context,
            get_api_key=get_api_key,
            message_provider=self._queues,
            **policies_by_slot(
                policies,
                pre_turn_policies=pre_turn_policies,
                pre_dispatch_policies=pre_dispatch_policies,
                post_turn_policies=post_turn_policies,
                post_loop_policies=post_loop_policies,
            ),
            approve=approve,
            approval_mode=ApprovalMode(approval_mode),
            tool_execution=tool_execution,
            state=self.state,
            deps=deps,
            execution_root=execution_root,
            redactor=redactor,
            sleep=sleep or asyncio.sleep,
        )
        self._transcript = self._new_transcript(history)
        self._initial = (spec, system_prompt, self._toolbox, history, copy_json(dict(self.state)))

    def __repr__(self) -> str:
        running = ", running" if self.is_running else ""
        return f"<Agent {self.model}, {len(self._toolbox)} tools, {len(self._transcript)} messages{running}>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        raise TypeError(
            "an Agent cannot be copied or pickled: agent.replaced() makes another with its history, "
            "and agent.messages can be pickled"
        )

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelSpec:
        """The model that the next run asks; a `provider:model` string may be assigned.

        Raises `ProviderMismatch` for a model of another provider if the agent's `stream_fn` belongs to one.
        """
        return self._config.model

    @model.setter
    def model(self, model: str | ModelSpec) -> None:
        spec = as_model(model)
        check_provider(self._config.stream_fn, spec, self._config.model.provider)
        self._config = replace(self._config, model=spec)
        if self._transcript.recorder is not None:
            self._transcript.recorder.model_is(spec)

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self.model.thinking_level

    @thinking_level.setter
    def thinking_level(self, level: ThinkingLevel | str) -> None:
        self.model = replace(self.model, thinking_level=ThinkingLevel(level))

    @property
    def tools(self) -> tuple[AgentTool[Deps], ...]:
        """The tools of the next run; if a function of the turn gives them, those of the last turn."""
        return self._toolbox.tools

    @tools.setter
    def tools(self, tools: Tools[Deps]) -> None:
        self._toolbox = as_toolbox(tools)

    @property
    def given_tools(self) -> Tools[Deps]:
        """The tools as the application gave them: all of them, or the function of the turn."""
        return self._toolbox.tools if isinstance(self._toolbox, Toolbox) else self._toolbox.function

    @property
    def messages(self) -> History:
        """The history, live: read it at any time, assign it or change it between runs."""
        return History(lambda: self._transcript.history, self._replace_messages, self._append_messages)

    @messages.setter
    def messages(self, messages: Iterable[str | AgentMessage]) -> None:
        self._replace_messages(as_history(messages))

    def _replace_messages(self, messages: Sequence[AgentMessage]) -> None:
        with self._changing_history():
            recorder = self._transcript.recorder
            self._transcript = self._new_transcript(messages)
            self._transcript.recorder = recorder
            if recorder is not None:
                recorder.history_set(messages)

    def _append_messages(self, messages: Sequence[AgentMessage]) -> None:
        with self._changing_history():
            self._transcript.add(messages)

    def _new_transcript(self, messages: Sequence[AgentMessage]) -> Transcript:
        transcript = Transcript(messages)
        if messages and self._config.convert_to_llm is default_convert_to_llm:
            transcript.convert_by_default()
            transcript.conversation()  # so that the first turn costs no more than the others
        return transcript

    @contextmanager
    def _changing_history(self) -> Generator[None]:
        with self._claims.lock:
            if self.is_running:
                raise AlreadyRunning("a run is using the history: steer() or follow_up(), or wait_for_idle() first")
            yield

    @property
    def is_running(self) -> bool:
        return self._claims.current is not None

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """What has been streamed of the current reply."""
        run = self._run
        assembler = None if run is None else run.assembler
        return None if assembler is None else assembler.snapshot()

    @property
    def pending_tool_calls(self) -> frozenset[str]:
        """The ids of the tool calls that are being executed."""
        run = self._run
        return frozenset() if run is None else frozenset(run.executing)

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for an answer; `resume` takes the answers."""
        if not is_waiting(self._transcript.history):
            return ()
        from ..pending import pending_calls  # on use: most agents defer nothing

        return pending_calls(self._transcript.history)

    @property
    def config(self) -> AgentLoopConfig:
        """The configuration of the next run. Read-only: `replaced` makes an agent with another."""
        return self._config

    def replaced(self, **arguments: Any) -> Agent[Deps]:
        """Returns a new agent with these constructor arguments, and the rest of this one.

        It has copies of the history and the state, and the same policies; no journal, subscribers or queued messages.
        Given `stream_fn`, fallbacks and `get_api_key` are dropped unless they are given too; given `policies`, all
        others are dropped. Raises `TypeError` for an argument that the constructor does not have.
        """
        from inspect import signature  # on use: few agents are made from others

        from .arguments import arguments_of

        own = {
            "system_prompt": self.system_prompt,
            "tools": self.given_tools,
            "messages": tuple(self._transcript.history),
            "state": copy_json(dict(self.state)),
        }
        return Agent(**arguments_of(self._config, own, arguments, signature(Agent).parameters))

    @property
    def redactor(self) -> hints.Redactor | None:
        """The redactor that the agent was given, for code that writes down what the agent did."""
        return self._config.redactor

    @property
    def last_error(self) -> str | None:
        """The error or abort that the last run ended with, if it did."""
        return self._last_error

    @property
    def last_result(self) -> AgentResult | None:
        """The result of the last run, `structured_output` included. `None` before its end, and during the next run."""
        return self._last_result

    @property
    def total_usage(self) -> Usage:
        """The usage of all runs of this object so far: the current one, their delegates and `compact()` included.

        It only grows: neither `reset()` nor another history changes it. It does not include what a session used before
        it was attached; the session reports that.
        """
        return self._spent_so_far()[0]

    @property
    def total_cost(self) -> Cost:
        """The cost of all runs of this object so far, counted as `total_usage` is."""
        return self._spent_so_far()[1]

    def _spent_so_far(self) -> tuple[Usage, Cost]:
        with self._claims.lock:
            (usage, cost), run = self._spent, self._run
        if run is None:
            return usage, cost
        spent = run.spent
        return usage + spent[0], cost + spent[1]

    def _count(self, run: hints.Run) -> None:
        """Adds a run that is over to the agent's usage and cost."""
        with self._claims.lock:
            self._run = None
            usage, cost = self._spent
            spent = run.spent
            self._spent = (usage + spent[0], cost + spent[1])

    # -- running -----------------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> AgentResult:
        """Runs until the agent stops. An error on the way is in the result.

        `images` and `documents` are attached to a prompt that is a string: blocks, sources, bytes, or paths of files.
        `deps`, `model`, `tools`, `system_prompt` and `stream_options` are for this run alone, as in every way to run.

        Raises an `AgentError` before anything has happened: `AlreadyRunning` (but it waits for the end of an aborted or
        abandoned run), `AuthError` for a missing key, `UnknownProvider` for a model without an adapter. Raises
        `ValueError` for a prompt without any content and for a file of an unknown kind, `OSError` for a missing file.
        """
        return await self._drive(self._order(given, prompts_of(prompt, given)))

    def prompt_stream(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> EventStream:
        """Returns the same run as a stream of events. Raises what `prompt` raises, at once."""
        return self._stream(self._order(given, prompts_of(prompt, given)))

    def prompt_sync(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> AgentResult:
        """The same for code that is not async; it may be called inside a running event loop, and blocks it."""
        return self._sync(self._order(given, prompts_of(prompt, given)))

    async def continue_loop(self, **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """Runs from the history as it is. Raises `NoMessages`, `InvalidContinue`, and what `prompt` raises."""
        return await self._drive(self._order(given))

    def continue_loop_stream(self, **given: Unpack[RunOptions[Deps]]) -> EventStream:
        """The same as a stream of events."""
        return self._stream(self._order(given))

    def continue_loop_sync(self, **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """The same for code that is not async."""
        return self._sync(self._order(given))

    async def resume(self, answers: Mapping[str, hints.Answer], **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """Acts on answers to some or all of the calls that wait (`pending`), by their ids.

        An answer is `Approve()`, `ApproveWith(arguments)`, `Reject(reason)` or a bool; for an external call it is an
        `AgentToolResult`. Answered calls are resolved at once, the others wait on, and the model is asked when nothing
        waits. `approve` is not asked again, but pre-dispatch policies are.

        Raises `NotPending` for an id that does not wait, `ValueError` for no answers, `TypeError` for an answer that
        does not fit its call, and what `prompt` raises; then no answer counts.
        """
        return await self._drive(self._order(given, answers=answers))

    def resume_stream(self, answers: Mapping[str, hints.Answer], **given: Unpack[RunOptions[Deps]]) -> EventStream:
        """The same as a stream of events."""
        return self._stream(self._order(given, answers=answers))

    def resume_sync(self, answers: Mapping[str, hints.Answer], **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """The same for code that is not async."""
        return self._sync(self._order(given, answers=answers))

    def text_stream(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> hints.TextStream:
        """Returns the same run as `prompt` as a stream of its text. Raises what `prompt` raises, at once."""
        from ..run.views import TextStream, view_of_text  # on use: most agents are read otherwise

        order = self._order(given, prompts_of(prompt, given))
        order.view = view_of_text()
        return TextStream(self._stream(order))

    def _value_order(
        self, given: PromptOptions[Deps], prompt: PromptOrAnswers, request: hints.StructuredOutput
    ) -> _Order:
        if isinstance(prompt, Mapping):
            return self._order(given, None, request, prompt)
        return self._order(given, prompts_of(prompt, given), request)

    def _order(
        self,
        given: Mapping[str, Any],
        prompts: tuple[AgentMessage, ...] | None = None,
        request: hints.StructuredOutput | None = None,
        answers: Mapping[str, hints.Answer] | None = None,
    ) -> _Order:
        """Returns the order of a run: what its caller gave, and the overrides that hold here and now."""
        return _Order(prompts, request, given_to(self, given), answers)

    def _sync(self, order: _Order) -> AgentResult:
        from .sync import run_sync  # on use: most agents run in async code

        here = running_loop()
        return run_sync(lambda: self._drive(order, blocked=here), self.abort)

    def _stream(self, order: _Order) -> EventStream:
        claim = self._claim(order)
        stream = EventStream(
            lambda channel: self._drive(order, claim, channel),
            claim.token,
            lambda: self._claims.release(claim),
            self._subscriptions,
        )
        claim.is_left = stream.channel.is_left
        return stream

    def _claim(self, order: _Order, blocked: asyncio.AbstractEventLoop | None = None) -> Claim:
        """Claims the run of an order. Raises what makes it impossible, before anything has happened."""
        if order.prompts is None and not self.is_running:
            self._check_history(order)
        check_given(self._config, order.given, self._toolbox)
        return self._claims.take(blocked)

    def _check_history(self, order: _Order) -> None:
        history = self._transcript.history
        if order.answers is not None:
            from ..pending import checked_answers  # on use: most agents defer nothing

            order.answers = checked_answers(order.answers, history)
            return
        if not history:
            raise NoMessages
        if (
            (is_answered(history) or is_waiting(history))
            and not self._queues.has_messages()
            and self._queues.provider is None
        ):
            raise cannot_continue(history)

    async def _drive(
        self,
        order: _Order,
        claim: Claim | None = None,
        channel: Channel | None = None,
        blocked: asyncio.AbstractEventLoop | None = None,
    ) -> AgentResult:
        """The one path behind all ways to run: from the claim, unless the caller has one, to its release.

        Nothing is awaited after `AgentEnd`, so a reader of that event finds the agent idle.
        """
        if claim is None:
            claim = self._claim(order, blocked)
        self._claims.begin(claim)
        try:
            if claim.predecessor is not None:
                await claim.wait_for_predecessors()
                if order.prompts is None:
                    self._check_history(order)
            run = self._run = self._new_run(claim, order, channel)
            if order.answers is not None:
                run.answers = dict(order.answers)
            self._last_error = self._last_result = None
            try:
                self._last_result = result = await run.loop(run, order.prompts)
            finally:
                self._count(run)
            self._last_error = result.error
            return result
        except (asyncio.CancelledError, GeneratorExit):
            self._last_error = str(Aborted())
            raise
        finally:
            self._claims.release(claim)

    def _new_run(self, claim: Claim, order: _Order, channel: Channel | None = None) -> hints.Run:
        from ..loop import Run, run_loop  # on use: an agent may be made long before it runs

        given, request = order.given or {}, order.request
        config = config_of(self._config, order.given)
        if config.state is not self.state:  # an application may assign another
            config = replace(config, state=self.state)
        toolbox: Toolbox | TurnTools = given.get("tools", self._toolbox)
        if request is not None:
            config = replace(config, post_turn_policies=(*config.post_turn_policies, request))
        subscriptions = self._subscriptions
        if channel is None:
            emit = subscriptions.notify
        else:
            emit = channel.push if order.view is None else self._viewed(order.view, channel)
        return Run(
            config,
            self._transcript,
            toolbox,
            given.get("system_prompt", self.system_prompt),
            claim.token,
            emit,
            run_loop,
            channel,
            request,
            subscriptions if channel is None else None,
            given.get("deps", config.deps),
        )

    def _viewed(self, view: hints.ViewFn, channel: Channel) -> Callable[[AgentEvent], None]:
        """Returns a function that gives subscribers each event, and the stream what the view makes of it."""

        def pushed(event: AgentEvent) -> None:
            self._subscriptions.notify(event)
            view(event, None if self._run is None else self._run.assembler, channel.put)

        return pushed

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        requires_approval: bool = False,
        on_steer: OnSteer = "cancel",
        timeout: float | None = None,
        max_concurrent: int | None = None,
        max_depth: int = 3,
    ) -> AgentTool[Deps]:
        """Returns a tool with one argument, `prompt`, that runs a copy of this agent: a delegate.

        A copy begins with the messages and the state that this agent was made with, and forgets its own at the end. Any
        number of copies may run at once. The text of the last reply is the result; the caller's history and session
        contain nothing else of it. The caller's stream has its events (`DelegateEvent`), and the caller's result its
        usage and cost (`total_usage`, `total_cost`).

        What this agent lacks of `approve`, `redactor` and `execution_root` it takes from the caller. The caller's
        policies with `every_call`, such as `Budget`, are asked about its requests too. The caller's deps reach it.
        Aborts and timeouts end it. A call inside more than `max_depth` delegates is an error result.
        """
        from .delegate import Delegate  # on use: few agents delegate

        return Delegate(
            self._delegated_run,
            name,
            description,
            requires_approval=requires_approval,
            on_steer=on_steer,
            timeout=timeout,
            max_concurrent=max_concurrent,
            max_depth=max_depth,
        )

    def _delegated_run(self, make: hints.MakeRunFn, deps: Any) -> hints.Run:
        """Makes the run of a copy of this agent, with the caller's deps. Raises what makes it impossible."""
        given = given_to(self, {} if deps is None else {"deps": deps})
        check_given(self._config, given, self._toolbox)
        _, _, _, messages, state = self._initial
        config = replace(config_of(self._config, given), state=copy_json(state))
        return make(config, messages, {"tools": self._toolbox, "system_prompt": self.system_prompt, **(given or {})})

    async def compact(self, instructions: str | None = None) -> CompactionReport | None:
        """Runs the transforms now, even below their budget; returns what they removed, or `None` for nothing.

        The instructions are for the transform that writes a summary. The history stays as it is. Counts as a run:
        raises `AlreadyRunning` during another, and `Aborted` after `abort()`.
        """
        claim = self._claims.take()
        self._claims.begin(claim)
        try:
            await claim.wait_for_predecessors()
            if not self._config.has_transform:
                return None
            from ..reply import compact_on_demand  # on use, as everything that only runs need

            run = self._new_run(claim, self._order({}))
            try:
                return await compact_on_demand(run, instructions)
            finally:
                self._count(run)
        finally:
            self._claims.release(claim)

    @contextmanager
    def override(self, **given: Unpack[OverrideOptions[Deps]]) -> Generator[None]:
        """Puts these values before what runs are given and before the agent's own, for tests.

        It holds for the runs that start inside, also in tasks, streams and threads made there, and for no others; an
        inner override goes before an outer. With `stream_fn` there are no fallbacks, and no key is needed.
        """
        with overriding(self, given):
            yield

    # -- while it runs -----------------------------------------------------------------------------------------

    def steer(self, message: Prompt) -> None:
        """Interrupts the agent: the message leads its next turn, and running tools are cancelled.

        Raises `ValueError` for a message without any content.
        """
        self._queues.add("steering", as_prompts(message))

    def follow_up(self, message: Prompt) -> None:
        """Gives the agent more to do when it would stop. Raises `ValueError` for a message without any content."""
        self._queues.add("follow_up", as_prompts(message))

    def clear_steering(self) -> None:
        self._queues.clear("steering")

    def clear_follow_ups(self) -> None:
        self._queues.clear("follow_up")

    def clear_queues(self) -> None:
        self._queues.clear("steering", "follow_up")

    @property
    def has_queued_messages(self) -> bool:
        return self._queues.has_messages()

    def abort(self) -> None:
        """Cancels the run, if there is one."""
        self._claims.abort()

    async def wait_for_idle(self) -> None:
        """Returns when the agent is not running."""
        claim = self._claims.current
        if claim is not None:
            await claim.idle.wait()

    def reset(self) -> None:
        """Restores model, system prompt, tools, history and state as they were at the start, and empties the queues.

        Subscriptions stay. Raises `AlreadyRunning` during a run.
        """
        model, system_prompt, toolbox, messages, state = self._initial
        self._replace_messages(messages)
        self.model, self.system_prompt, self._toolbox = model, system_prompt, toolbox
        self._replace_state(state)
        self._last_error = self._last_result = None
        self.clear_queues()

    def _replace_state(self, state: dict[str, Any]) -> None:
        self.state.clear()
        self.state.update(copy_json(state))

    # -- recording and observing -------------------------------------------------------------------------------

    def attach_journal(self, journal: hints.Journal, past: hints.Past | None = None) -> None:
        """Records what the agent does from now on.

        With a past, the agent continues from it: it takes the history, the context, the state, and the model if its
        `stream_fn` serves that. Without one, everything that the agent has so far is recorded.

        Raises `AlreadyRunning` during a run.
        """
        from .recording import start_recording  # on use: most agents have no journal

        with self._changing_history():
            if past is not None:
                self._transcript = self._new_transcript(past.messages)
                if past.context is not None:
                    self._transcript.adopt(past.context)
                self._replace_state(past.state)
                if past.model is not None:
                    with suppress(ProviderMismatch):
                        self.model = past.model
            start_recording(self._transcript, journal, past, self._config, self.state)

    @property
    def journal(self) -> hints.Journal | None:
        """The journal that records the agent, if there is one."""
        recorder = self._transcript.recorder
        return None if recorder is None else recorder.journal

    def detach_journal(self) -> hints.Journal | None:
        """Stops recording and returns the journal, if there was one. Raises `AlreadyRunning` during a run."""
        with self._changing_history():
            recorder, self._transcript.recorder = self._transcript.recorder, None
            if recorder is None:
                return None
            try:
                recorder.state_is(self.state)
            except AgentError as error:
                log.warning("%s", error)
            return recorder.journal

    def subscribe(self, callback: Callable[[AgentEvent], object]) -> Subscription:
        """Calls `callback` with every event from now on, before the run continues. One that raises is removed."""
        return self._subscriptions.add(callback)
