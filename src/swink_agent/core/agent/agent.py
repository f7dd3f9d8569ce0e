"""The agent: a model, its tools and its history, and the ways to run, steer, stop and observe it.

Owns the methods that an application calls. `agent_state` keeps the values that last from run to run, `running` starts
and ends every run, and `loop` is the run itself. The other files of this package are parts of the agent: `value_runs`
(runs that return a value), `claim` (one run at a time), `given` and `arguments` (the application's arguments, with
their types in `options`), `queues`, `history`, `subscriptions`, `delegate`, and `sync` (runs from code that is not
async).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any, SupportsIndex, Unpack

from msgspec.structs import replace

from ..approval import ApprovalMode, ApproveFn
from ..config import (
    AgentLoopConfig,
    ConvertToLlmFn,
    GetApiKeyFn,
    MessageProvider,
    SleepFn,
    ToolExecution,
    TransformContextFn,
)
from ..context.context import default_convert_to_llm
from ..errors import AgentError, ProviderMismatch
from ..events import AgentEvent, CompactionReport
from ..journal import Journal, Past
from ..output import EventStream, Subscription, TextStream, view_of_text
from ..policy import Policy, PostLoopPolicy, PostTurnPolicy, PreDispatchPolicy, PreTurnPolicy
from ..retry import DefaultRetryStrategy, RetryStrategy
from ..run.observer import RunObserver
from ..run.pending import Answer
from ..run.turn import as_toolbox, check_prompt
from ..secrets.redaction import Redactor
from ..stream import StreamFn, StreamOptions
from ..tool import AgentTool, OnSteer
from ..types import AgentMessage, AgentResult, ModelSpec, as_prompts
from ..values.checks import is_function, is_not
from ..values.value import Deps, FrozenDict, copy_json
from .arguments import (
    POLICY_SLOTS,
    Prompt,
    arguments_of,
    as_history,
    as_model,
    policies_by_slot,
    prompts_of,
    stream_fns,
)
from .claim import Claims
from .delegate import Delegate
from .given import Override
from .options import OverrideOptions, PromptOptions, RunOptions, SystemPrompt, Tools
from .queues import MessageQueues, QueueMode
from .value_runs import ValueRuns

log = logging.getLogger("swink_agent")
_OPTIONS = StreamOptions(headers=FrozenDict(), extra=FrozenDict())  # the options of all agents that are given none


class Agent(ValueRuns[Deps]):
    """An agent: a model, its tools, its history, and the ways to run, steer and stop it.

    One run at a time. Steering, queues, `abort`, `subscribe`, `wait_for_idle` and `reset` are safe from any thread.
    """

    __slots__ = ("__weakref__",)

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
        execution_root: Path | None = None,
        redactor: Redactor | None = None,
        sleep: SleepFn | None = None,
    ) -> None:
        claims = Claims()
        queues = MessageQueues(steering_mode, follow_up_mode, message_provider, claims.lock)
        toolbox = as_toolbox(tools)
        history = as_history(messages)
        if state is not None and not hasattr(state, "keys"):
            raise is_not("state", state, "a mapping, such as a dict")
        check_prompt(system_prompt)
        if stream_fn is not None and not is_function(stream_fn):
            raise is_not("stream_fn", stream_fn, "a function")
        spec = as_model(model)
        ask, others = stream_fns(spec, stream_fn, fallbacks)
        config = AgentLoopConfig(
            model=spec,
            stream_fn=ask,
            stream_options=_OPTIONS if stream_options is None else stream_options,
            retry_strategy=retry_strategy or DefaultRetryStrategy(),
            fallbacks=others,
            convert_to_llm=convert_to_llm or default_convert_to_llm,
            async_transform_context=async_transform_context,
            transform_context=transform_context,
            get_api_key=get_api_key,
            message_provider=queues,
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
            state={} if state is None else state,
            deps=deps,
            execution_root=execution_root,
            redactor=redactor,
            sleep=sleep or asyncio.sleep,
        )
        super().__init__(config, claims, queues, toolbox, system_prompt, history)

    def __repr__(self) -> str:
        running = ", running" if self.is_running else ""
        return f"<Agent {self.model}, {len(self._toolbox)} tools, {len(self._transcript)} messages{running}>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        raise TypeError(
            "an Agent cannot be copied or pickled: agent.replaced() makes another with its history, "
            "and agent.messages can be pickled"
        )

    def replaced(self, **arguments: Any) -> Agent[Deps]:
        """Returns a new agent with these constructor arguments, and the rest of this one.

        It has copies of the history and the state, and the same policies; no journal, subscribers or queued messages.
        Given `stream_fn`, fallbacks and `get_api_key` are dropped unless they are given too; given `policies`, all
        others are dropped. Raises `TypeError` for an argument that the constructor does not have.
        """
        own = {
            "system_prompt": self.system_prompt,
            "tools": self.given_tools,
            "messages": tuple(self._transcript.history),
            "state": copy_json(dict(self.state)),
        }
        return Agent(**arguments_of(self._config, own, arguments, signature(Agent).parameters))

    # -- running -----------------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> AgentResult:
        """Runs until the agent stops. An error during the run is in the result.

        `images` and `documents` are attached to a prompt that is a string: blocks, sources, bytes, or paths of files.
        `deps`, `model`, `tools`, `system_prompt` and `stream_options` are for this run only, as in all such methods.

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

    async def resume(self, answers: Mapping[str, Answer], **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """Acts on answers to some or all of the calls that wait (`pending`), by their ids.

        An answer is `Approve()`, `ApproveWith(arguments)`, `Reject(reason)`, a bool, or an `AgentToolResult` if the
        application did the work. An external call takes only a result or a rejection. Answered calls are resolved at
        once, the others keep waiting, and the model is asked when no call waits. `approve` is not asked again, but
        pre-dispatch policies are.

        Raises `NotPending` for an id that does not wait, `ValueError` for no answers or an ambiguous id, `TypeError`
        for an answer that does not fit its call, and what `prompt` raises; then no answer counts.
        """
        return await self._drive(self._answer_order(given, answers))

    def resume_stream(self, answers: Mapping[str, Answer], **given: Unpack[RunOptions[Deps]]) -> EventStream:
        """The same as a stream of events."""
        return self._stream(self._answer_order(given, answers))

    def resume_sync(self, answers: Mapping[str, Answer], **given: Unpack[RunOptions[Deps]]) -> AgentResult:
        """The same for code that is not async."""
        return self._sync(self._answer_order(given, answers))

    def text_stream(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> TextStream:
        """Returns the same run as `prompt` as a stream of its text. Raises what `prompt` raises, at once."""
        order = self._order(given, prompts_of(prompt, given))
        order.view = view_of_text()
        return TextStream(self._stream(order))

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

        A copy begins with the messages and the state that this agent was made with, and is discarded at the end. Any
        number of copies may run at once. The text of the last reply is the result; the caller's history and session
        contain nothing else of it. The caller's stream has its events (`DelegateEvent`), and the caller's result its
        usage and cost (`total_usage`, `total_cost`).

        If this agent has no `approve`, `redactor` or `execution_root`, it uses the caller's. The caller's policies with
        `every_call`, such as `Budget`, are asked about its requests too. It gets the caller's deps. Aborts and timeouts
        end it. A call inside more than `max_depth` delegates is an error result.
        """
        options = requires_approval, on_steer, timeout, max_concurrent, max_depth
        return Delegate(self._delegated_run, name, description, *options)

    async def compact(self, instructions: str | None = None) -> CompactionReport | None:
        """Runs the transforms now, even below their budget; returns what they removed, or `None` for nothing.

        The instructions are for the transform that writes a summary. The history stays as it is. Counts as a run:
        raises `AlreadyRunning` during another, and `Aborted` after `abort()`.
        """
        return await self._compact(instructions)

    def override(self, **given: Unpack[OverrideOptions[Deps]]) -> Override:
        """Replaces values of the agent, and values that its runs are given, for tests.

        Applies only to runs that start inside the block, streams that are made in it, and runs in tasks and threads
        that copied its context. An inner override takes precedence over an outer one. With `stream_fn` there are no
        fallbacks, and no key is needed.
        """
        return Override(self, given)

    # -- while it runs -----------------------------------------------------------------------------------------

    def steer(self, message: Prompt) -> None:
        """Interrupts the agent: its next turn begins with the message.

        Cancels running tools, except those with `on_steer="finish"`. Raises `ValueError` for a message without content.
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

    def add_policy(self, policy: Policy) -> None:
        """Adds a policy after the others, to an agent that was made elsewhere. It applies to runs from now on.

        Raises `TypeError` for an object that is not a policy, and `AlreadyRunning` during a run.
        """
        with self._changing_history():
            added = policies_by_slot([policy], **{name: getattr(self._config, name) for name in POLICY_SLOTS})
            self._config = replace(self._config, **added)

    # -- recording and observing -------------------------------------------------------------------------------

    def attach_journal(self, journal: Journal, past: Past | None = None, *, keep_model: bool = False) -> None:
        """Records what the agent does from now on.

        With a past, the agent continues from it: it takes the history, the context, the state, and the model if its
        `stream_fn` serves that. With `keep_model` its own model stays. Without a past, everything that the agent has so
        far is recorded.

        Raises `AlreadyRunning` during a run.
        """
        with self._changing_history():
            if past is not None:
                self._transcript = self._new_transcript(past.messages)
                if past.context is not None:
                    self._transcript.adopt(past.context)
                self._replace_state(past.state)
                if past.model is not None and not keep_model:
                    with suppress(ProviderMismatch):
                        self.model = past.model
            self._start_recording(journal, past)

    def detach_journal(self) -> Journal | None:
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

    def observe(self, observer: RunObserver) -> Subscription:
        """Lets an observer see events, requests and tool calls of the runs that begin from now on, and of delegates."""
        return self._subscriptions.observe(observer)
