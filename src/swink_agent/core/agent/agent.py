"""The agent: a model, its tools and its history, and the ways to run, steer, stop and observe it.

Owns the methods that an application calls, and the values that last from run to run. Its parts: `lifecycle` (one run at
a time, from a caller's order to the result), `run/inbox` (the queues), `history` (the messages as a list), `arguments`
(what an application may give), `structured` (runs that return a value) and `delegate` (an agent as a tool). The run
itself is in `loop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from operator import is_
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeAlias, TypeVar, Unpack, overload

from msgspec.structs import replace

from ..approval import ApprovalMode, ApproveFn, PendingCall
from ..cancel import CancellationToken
from ..config import (
    AgentLoopConfig,
    ConvertToLlmFn,
    GetApiKeyFn,
    MessageProvider,
    SleepFn,
    ToolExecution,
    TransformContextFn,
)
from ..context.context import cannot_continue, default_convert_to_llm, is_answered, is_waiting
from ..errors import AgentError, AlreadyRunning, NoMessages, ProviderMismatch
from ..events import AgentEvent, CompactionReport
from ..journal import Journal, Past, Recorder
from ..loop import run_loop
from ..output import Channel, EventStream, Subscription, TextStream, ValueStream, view_of_text, view_of_value
from ..policy import Policy
from ..retry import DefaultRetryStrategy, RetryStrategy
from ..run.inbox import MessageQueues, QueueMode
from ..run.observer import RunObserver
from ..run.pending import Answer, check_new_arguments, checked_answers, pending_calls
from ..run.state import EmitFn, Run, RunSetup
from ..run.transcript import Transcript
from ..run.turn import SystemPrompt, Tools, as_toolbox, check_prompt
from ..secrets.redaction import Redactor
from ..stream import StreamFn, StreamOptions
from ..tool import AgentTool, OnSteer, Toolbox
from ..types import AgentMessage, AgentResult, AssistantMessage, Cost, ModelSpec, ThinkingLevel, Usage, as_prompts
from ..values.checks import as_policies, is_function, is_not
from ..values.value import Deps, FrozenDict, Out, copy_json
from ..values.words import AGENT_ARGUMENTS, knows_other_words, no_attribute
from .arguments import (
    Fallback,
    Given,
    Model,
    Override,
    OverrideOptions,
    Prompt,
    PromptOptions,
    RunOptions,
    ValueOptions,
    apart_of,
    arguments_of,
    as_history,
    as_model,
    cancel_of,
    check_given,
    check_provider,
    config_of,
    given_to,
    policies_by_slot,
    prompts_of,
    stream_fn_in,
    stream_fns,
)
from .delegate import Delegate
from .history import History
from .lifecycle import Claims, Lifecycle, Order
from .structured import StructuredOutput, StructuredResult, output_request

T = TypeVar("T")
PromptOrAnswers: TypeAlias = Prompt | Mapping[str, Any]

log = logging.getLogger("swink_agent")
_OPTIONS = StreamOptions(headers=FrozenDict(), extra=FrozenDict())  # the options of all agents that are given none


class Agent(Generic[Deps, Out]):
    """An agent: a model, its tools, its history, and the ways to run, steer and stop it.

    One run at a time. Steering, queues, `abort`, `subscribe`, `wait_for_idle` and `reset` are safe from any thread.
    """

    __slots__ = (  # an attribute with a misspelt name is refused
        *("__weakref__", "_config", "_initial", "_lifecycle", "_output", "_policies", "_queues"),
        *("_toolbox", "_transcript", "state", "system_prompt"),
    )

    @knows_other_words("an agent", AGENT_ARGUMENTS)
    def __init__(
        self,
        model: Model,
        *,
        output: type[Out] | dict[str, Any] | None = None,
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
        fallbacks: Sequence[Fallback] = (),
        convert_to_llm: ConvertToLlmFn | None = None,
        async_transform_context: TransformContextFn | None = None,
        transform_context: TransformContextFn | None = None,
        get_api_key: GetApiKeyFn | None = None,
        message_provider: MessageProvider | None = None,
        tool_execution: ToolExecution = "concurrent",
        steering_mode: QueueMode = "one_at_a_time",
        follow_up_mode: QueueMode = "one_at_a_time",
        state: MutableMapping[str, Any] | None = None,
        execution_root: Path | None = None,
        max_turns: int | None = 100,
        redactor: Redactor | None = None,
        sleep: SleepFn | None = None,
    ) -> None:
        """Makes an agent. Wrong arguments are refused here, before any run.

        Args:
            model: The model to ask: `"provider:model"`, a `ModelSpec`, or a stream function that names its model.
            output: The type, or the JSON Schema, of the value that each run gives as `result.output`; `None` for text.
            system_prompt: The instructions: a string, or a function that each turn calls once.
            tools: The tools that the model may call, or a function that each turn calls for them.
            deps: What tools, system prompt and policies get as `ctx.deps`, unless a run is given its own.
            messages: The history that the agent begins with.
            stream_fn: How the model is asked; by default, the adapter of its provider.
            stream_options: Temperature, limits, key and other options of each request.
            policies: Objects that watch each run and may stop it, add to it, skip calls or mask text.
            approve: Decides about calls that need approval. Without it, they are rejected.
            approval_mode: Which calls need approval: `"where_required"`, `"enabled"` (all) or `"bypassed"` (none).
            retry_strategy: Which failed requests are repeated, and when; by default throttled and network errors.
            fallbacks: Models to ask when the first is throttled or cannot be reached: pairs of a model and its stream
                function (`None` for the adapter), or stream functions that name their models.
            convert_to_llm: Makes of each message the one to send; by default, messages of your own types are left out.
            async_transform_context: Shortens what is sent to the model; called before `transform_context`.
            transform_context: Shortens what is sent to the model, such as `SlidingWindow()`.
            get_api_key: Returns the key for a provider, before each request.
            message_provider: Another source of steering and follow-up messages.
            tool_execution: Whether calls of a reply run together (`"concurrent"`), one by one, or in groups.
            steering_mode: How many steering messages enter one turn: `"one_at_a_time"` or `"all"`.
            follow_up_mode: The same for follow-up messages.
            state: JSON data that tools share and policies can read.
            execution_root: The folder that your tools get as `ctx.execution_root`.
            max_turns: The most turns of a run that ask a model; `None` for no limit.
            redactor: Masks secrets; by default, those of the environment.
            sleep: How to wait before a retry, for tests.
        """
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
        if (named := stream_fn_in(model)) is not None:
            if stream_fn is not None:
                raise TypeError("the model is a stream function already: give it without stream_fn")
            stream_fn = named
        ask, others = stream_fns(spec, stream_fn, fallbacks)
        given_policies = as_policies(policies, "policies") if policies != () else ()
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
            **policies_by_slot(given_policies),
            approve=approve,
            approval_mode=ApprovalMode(approval_mode),
            tool_execution=tool_execution,
            state=state,
            deps=deps,
            execution_root=execution_root,
            max_turns=max_turns,
            redactor=redactor,
            sleep=sleep or asyncio.sleep,
        )
        self._config = config
        self._output = output_request(output)
        self._policies = given_policies
        self._toolbox = toolbox
        self._queues = queues
        self._lifecycle = Lifecycle(claims)
        self.system_prompt: SystemPrompt[Deps] = system_prompt
        """The instructions: a string, or a function that each turn calls once."""
        self.state: MutableMapping[str, Any] = {} if state is None else state
        """JSON data that tools share and policies can read."""
        self._transcript = self._new_transcript(history)
        initial_state = copy_json(dict(self.state)) if self.state else FrozenDict()
        self._initial = (spec, system_prompt, toolbox, history, initial_state)
        """What `reset` restores, and what copies of the agent begin with."""

    if not TYPE_CHECKING:  # checkers would accept any attribute

        def __class_getitem__(cls, types: Any) -> GenericAlias:
            return GenericAlias(cls, types)  # one type or two: Agent[Deps], Agent[Deps, Invoice]

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __repr__(self) -> str:
        running = ", running" if self.is_running else ""
        return f"<Agent {self.model}, {len(self._toolbox)} tools, {len(self._transcript)} messages{running}>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        raise TypeError(
            "an Agent cannot be copied or pickled: agent.replaced() makes another with its history, "
            "and agent.messages can be pickled"
        )

    def replaced(self, **arguments: Any) -> Agent[Deps, Out]:
        """Returns a new agent with these constructor arguments, and the rest of this one.

        It has copies of the history and the state, and the same policies; no journal, subscribers or queued messages.
        Given `stream_fn`, fallbacks and `get_api_key` are dropped unless they are given too. Raises `TypeError` for an
        argument that the constructor does not have.
        """
        own = {
            "system_prompt": self.system_prompt,
            "tools": self.given_tools,
            "messages": tuple(self._transcript.history),
            "state": copy_json(dict(self.state)),
            "policies": self._policies,
            "output": None if self._output is None else self._output.target,
        }
        return Agent(**arguments_of(self._config, own, arguments, signature(Agent).parameters))

    # -- values that last from run to run ---------------------------------------------------------------------

    @property
    def model(self) -> ModelSpec:
        """The model that the next run asks; a `provider:model` string may be assigned.

        Raises `ProviderMismatch` for a model of another provider if the agent's `stream_fn` serves only one.
        """
        return self._config.model

    @model.setter
    def model(self, model: Model) -> None:
        spec, stream_fn = as_model(model), stream_fn_in(model)
        if stream_fn is None:
            check_provider(self._config.stream_fn, spec, self._config.model.provider)
        self._config = replace(self._config, model=spec, stream_fn=stream_fn or self._config.stream_fn)
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
        """The tools as the application gave them: a tuple of tools, or the function of the turn."""
        return self._toolbox.tools if isinstance(self._toolbox, Toolbox) else self._toolbox.function

    @property
    def messages(self) -> History:
        """The history, live: read it at any time, assign it or change it between runs."""
        return History(lambda: self._transcript.history, self._replace_messages, self._append_messages)

    @messages.setter
    def messages(self, messages: Iterable[str | AgentMessage]) -> None:
        new, now = as_history(messages), self._transcript.history
        # `agent.messages += […]` extends the history, and then assigns it to itself: its context must stay.
        if not (isinstance(messages, History) and len(new) == len(now) and all(map(is_, new, now))):
            self._replace_messages(new)

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
            transcript.conversation()  # so that the first turn takes no longer than the others
        return transcript

    @contextmanager
    def _changing_history(self) -> Generator[None]:
        with self._lifecycle.claims.lock:
            if self.is_running:
                raise AlreadyRunning("a run is using the history: steer() or follow_up(), or wait_for_idle() first")
            yield

    def _start_recording(self, journal: Journal, past: Past | None) -> None:
        """Attaches a journal to the history. Without a past, records everything that the agent has so far."""
        transcript = self._transcript
        recorder = transcript.recorder = Recorder(journal, past)
        recorder.redactor = self._config.redactor or transcript.own_redactor()
        recorder.model_is(self._config.model)
        if past is not None:
            return
        recorder.added(transcript.history, "given")
        context = transcript.context
        if len(context) != len(transcript) or not all(map(is_, context, transcript.history)):
            recorder.context_replaced(context, None)
        recorder.state_is(self.state)

    def _replace_state(self, state: dict[str, Any]) -> None:
        self.state.clear()
        self.state.update(copy_json(state))

    @property
    def is_running(self) -> bool:
        return self._lifecycle.is_running

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The current reply as far as it has been streamed; `None` if there is none."""
        run = self._lifecycle.run
        assembler = None if run is None else run.assembler
        return None if assembler is None else assembler.snapshot()

    @property
    def pending_tool_calls(self) -> frozenset[str]:
        """The ids of the tool calls that are being executed."""
        run = self._lifecycle.run
        return frozenset() if run is None else frozenset(run.executing)

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for an answer; `resume` takes the answers."""
        if not is_waiting(self._transcript.history):
            return ()
        return pending_calls(self._transcript.history)

    @property
    def config(self) -> AgentLoopConfig:
        """The configuration of the next run. Read-only: `replaced` makes an agent with another."""
        return self._config

    @property
    def redactor(self) -> Redactor | None:
        """The redactor that the agent was given, for code that records what the agent does."""
        return self._config.redactor

    @property
    def last_error(self) -> str | None:
        """The error or abort that ended the last run, if any."""
        return self._lifecycle.last_error

    @property
    def last_result(self) -> AgentResult | None:
        """The result of the last run, `structured_output` included. `None` before its end, and during the next run."""
        return self._lifecycle.last_result

    @property
    def total_usage(self) -> Usage:
        """The usage of all runs of this object so far: the current one, their delegates and `compact()` included.

        It only grows: neither `reset()` nor another history changes it. It does not include what a session used before
        it was attached; the session reports that.
        """
        return self._lifecycle.spent[0]

    @property
    def total_cost(self) -> Cost:
        """The cost of all runs of this object so far, counted as `total_usage` is."""
        return self._lifecycle.spent[1]

    @property
    def has_queued_messages(self) -> bool:
        return self._queues.has_messages()

    @property
    def journal(self) -> Journal | None:
        """The journal that records the agent, if there is one."""
        recorder = self._transcript.recorder
        return None if recorder is None else recorder.journal

    # -- running -----------------------------------------------------------------------------------------------

    @overload
    async def prompt(
        self, prompt: Prompt, *, output: type[T], **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[T]: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, output: dict[str, Any], **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Any]: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, output: None = None, **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Out]: ...
    async def prompt(
        self, prompt: Prompt, *, output: Any = None, **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Any]:
        """Runs until the agent stops. An error during the run is in the result.

        `images` and `documents` are attached to a prompt that is a string: blocks, sources, bytes, or paths of files.
        `deps`, `model`, `tools`, `system_prompt`, `stream_options` and `max_turns` are for this run only, as in all
        such methods.

        Raises an `AgentError` before anything has happened: `AlreadyRunning` (but it waits for the end of an aborted or
        abandoned run), `AuthError` for a missing key, `UnknownProvider` for a model without an adapter. Raises
        `ValueError` for a prompt without any content and for a file of an unknown kind, `OSError` for a missing file.
        """
        return await self._lifecycle.drive(self._order(given, prompts_of(prompt, given), self._wanted(output)))

    @overload
    def prompt_stream(
        self, prompt: Prompt, *, output: type[T], **given: Unpack[PromptOptions[Deps]]
    ) -> EventStream[T]: ...
    @overload
    def prompt_stream(
        self, prompt: Prompt, *, output: dict[str, Any], **given: Unpack[PromptOptions[Deps]]
    ) -> EventStream[Any]: ...
    @overload
    def prompt_stream(
        self, prompt: Prompt, *, output: None = None, **given: Unpack[PromptOptions[Deps]]
    ) -> EventStream[Out]: ...
    def prompt_stream(
        self, prompt: Prompt, *, output: Any = None, **given: Unpack[PromptOptions[Deps]]
    ) -> EventStream[Any]:
        """Returns the same run as a stream of events. Raises what `prompt` raises, at once."""
        return self._lifecycle.stream(self._order(given, prompts_of(prompt, given), self._wanted(output)))

    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: type[T], **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[T]: ...
    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: dict[str, Any], **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Any]: ...
    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: None = None, **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Out]: ...
    def prompt_sync(
        self, prompt: Prompt, *, output: Any = None, **given: Unpack[PromptOptions[Deps]]
    ) -> AgentResult[Any]:
        """The same for code that is not async; it may be called inside a running event loop, and blocks it."""
        return self._lifecycle.sync(self._order(given, prompts_of(prompt, given), self._wanted(output)))

    @overload
    async def continue_loop(self, *, output: type[T], **given: Unpack[RunOptions[Deps]]) -> AgentResult[T]: ...
    @overload
    async def continue_loop(self, *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]) -> AgentResult[Any]: ...
    @overload
    async def continue_loop(self, *, output: None = None, **given: Unpack[RunOptions[Deps]]) -> AgentResult[Out]: ...
    async def continue_loop(self, *, output: Any = None, **given: Unpack[RunOptions[Deps]]) -> AgentResult[Any]:
        """Runs from the history as it is. Raises `NoMessages`, `InvalidContinue`, and what `prompt` raises."""
        return await self._lifecycle.drive(self._order(given, request=self._wanted(output)))

    @overload
    def continue_loop_stream(self, *, output: type[T], **given: Unpack[RunOptions[Deps]]) -> EventStream[T]: ...
    @overload
    def continue_loop_stream(
        self, *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]
    ) -> EventStream[Any]: ...
    @overload
    def continue_loop_stream(self, *, output: None = None, **given: Unpack[RunOptions[Deps]]) -> EventStream[Out]: ...
    def continue_loop_stream(self, *, output: Any = None, **given: Unpack[RunOptions[Deps]]) -> EventStream[Any]:
        """The same as a stream of events."""
        return self._lifecycle.stream(self._order(given, request=self._wanted(output)))

    @overload
    def continue_loop_sync(self, *, output: type[T], **given: Unpack[RunOptions[Deps]]) -> AgentResult[T]: ...
    @overload
    def continue_loop_sync(self, *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]) -> AgentResult[Any]: ...
    @overload
    def continue_loop_sync(self, *, output: None = None, **given: Unpack[RunOptions[Deps]]) -> AgentResult[Out]: ...
    def continue_loop_sync(self, *, output: Any = None, **given: Unpack[RunOptions[Deps]]) -> AgentResult[Any]:
        """The same for code that is not async."""
        return self._lifecycle.sync(self._order(given, request=self._wanted(output)))

    @overload
    async def resume(
        self, answers: Mapping[str, Answer], *, output: type[T], **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[T]: ...
    @overload
    async def resume(
        self, answers: Mapping[str, Answer], *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Any]: ...
    @overload
    async def resume(
        self, answers: Mapping[str, Answer], *, output: None = None, **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Out]: ...
    async def resume(
        self, answers: Mapping[str, Answer], *, output: Any = None, **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Any]:
        """Acts on answers to some or all of the calls that wait (`pending`), by their ids.

        An answer is `Approve()`, `ApproveWith(arguments)`, `Reject(reason)`, a bool, or an `AgentToolResult` if the
        application did the work. An external call takes only a result or a rejection. Answered calls are resolved at
        once, the others keep waiting, and the model is asked when no call waits. `approve` is not asked again, but
        pre-dispatch policies are.

        Raises `NotPending` for an id that does not wait, `ValueError` for no answers or an ambiguous id, `TypeError`
        for an answer that does not fit its call, and what `prompt` raises; then no answer counts.
        """
        return await self._lifecycle.drive(self._answer_order(given, answers, output))

    @overload
    def resume_stream(
        self, answers: Mapping[str, Answer], *, output: type[T], **given: Unpack[RunOptions[Deps]]
    ) -> EventStream[T]: ...
    @overload
    def resume_stream(
        self, answers: Mapping[str, Answer], *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]
    ) -> EventStream[Any]: ...
    @overload
    def resume_stream(
        self, answers: Mapping[str, Answer], *, output: None = None, **given: Unpack[RunOptions[Deps]]
    ) -> EventStream[Out]: ...
    def resume_stream(
        self, answers: Mapping[str, Answer], *, output: Any = None, **given: Unpack[RunOptions[Deps]]
    ) -> EventStream[Any]:
        """The same as a stream of events."""
        return self._lifecycle.stream(self._answer_order(given, answers, output))

    @overload
    def resume_sync(
        self, answers: Mapping[str, Answer], *, output: type[T], **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[T]: ...
    @overload
    def resume_sync(
        self, answers: Mapping[str, Answer], *, output: dict[str, Any], **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Any]: ...
    @overload
    def resume_sync(
        self, answers: Mapping[str, Answer], *, output: None = None, **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Out]: ...
    def resume_sync(
        self, answers: Mapping[str, Answer], *, output: Any = None, **given: Unpack[RunOptions[Deps]]
    ) -> AgentResult[Any]:
        """The same for code that is not async."""
        return self._lifecycle.sync(self._answer_order(given, answers, output))

    def text_stream(self, prompt: Prompt, **given: Unpack[PromptOptions[Deps]]) -> TextStream:
        """Returns a run as a stream of its text, also if the agent has an `output`. Raises what `prompt` raises, at
        once."""
        order = self._order(given, prompts_of(prompt, given))
        order.view = view_of_text()
        return TextStream(self._lifecycle.stream(order))

    # -- runs that return a value -----------------------------------------------------------------------------

    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[T, Deps]]
    ) -> StructuredResult[T]: ...
    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> StructuredResult[Any]: ...
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> StructuredResult[Any]:
        """Returns a value that the model gives, with usage, cost and messages: JSON for a JSON Schema (a dict), an
        instance for a type.

        If the model's provider accepts a JSON Schema, it gets the schema; otherwise a tool takes the value. An answer
        that does not fit goes back to the model with its errors. `validate` checks a value that fits: one function or
        several, plain or async; the `ValueError` that one raises goes back to the model too.

        Raises `StructuredOutputFailed` if the first answer and `max_retries` further ones do not fit, and
        `PolicyStopped` if a policy stops the run before there is a value. Otherwise raises the error of the run, or an
        exception of `validate` that is not a `ValueError`.
        """
        request = self._request(target, max_retries, given)
        return request.result_of(await self._lifecycle.drive(self._value_order(given, prompt, request)))

    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[T, Deps]]
    ) -> StructuredResult[T]: ...
    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> StructuredResult[Any]: ...
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> StructuredResult[Any]:
        """The same for code that is not async."""
        request = self._request(target, max_retries, given)
        return request.result_of(self._lifecycle.sync(self._value_order(given, prompt, request)))

    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[T, Deps]]
    ) -> ValueStream[T]: ...
    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> ValueStream[Any]: ...
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> ValueStream[Any]:
        """Returns the same run as a stream of the value as it grows; `result()` gives what `structured_run` returns."""
        request = self._request(target, max_retries, given)
        order = self._value_order(given, prompt, request)
        order.view = view_of_value(request)
        return ValueStream(self._lifecycle.stream(order), request)

    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[T, Deps]]
    ) -> T: ...
    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> Any: ...
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> Any:
        """Returns only the value of a `structured_run`."""
        return (await self.structured_run(prompt, target, max_retries, **given)).value

    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[T, Deps]]
    ) -> T: ...
    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> Any: ...
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Any, Deps]]
    ) -> Any:
        """The same for code that is not async."""
        return self.structured_run_sync(prompt, target, max_retries, **given).value

    # -- copies and tests -------------------------------------------------------------------------------------

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

        If this agent has no `approve`, `redactor` or `execution_root`, it uses the caller's. The caller's policies are
        asked about everything that it does, after its own. It gets the caller's deps. Aborts and timeouts end it. A
        call inside more than `max_depth` delegates is an error result.
        """
        options = requires_approval, on_steer, timeout, max_concurrent, max_depth
        return Delegate(self._delegate_setup, name, description, *options)

    async def compact(self, instructions: str | None = None) -> CompactionReport | None:
        """Runs the transforms now, even below their budget; returns what they removed, or `None` for nothing.

        The instructions are for the transform that writes a summary. The history stays as it is. Counts as a run:
        raises `AlreadyRunning` during another, and `Aborted` after `abort()`.
        """
        return await self._lifecycle.compact(self._order({}), instructions)

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
        self._lifecycle.claims.abort()

    async def wait_for_idle(self) -> None:
        """Returns when the agent is not running."""
        claim = self._lifecycle.claims.current
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
        self._lifecycle.last_error = self._lifecycle.last_result = None
        self.clear_queues()

    def add_policy(self, policy: Policy) -> None:
        """Adds a policy after the others, to an agent that was made elsewhere. It applies to runs from now on.

        Raises `TypeError` for an object that is not a policy, and `AlreadyRunning` during a run.
        """
        with self._changing_history():
            self._policies = (*self._policies, *as_policies([policy], "policies"))
            self._config = replace(self._config, **policies_by_slot(self._policies))

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
        return self._lifecycle.subscriptions.add(callback)

    def observe(self, observer: RunObserver) -> Subscription:
        """Lets an observer see events, requests and tool calls of the runs that begin from now on, and of delegates."""
        return self._lifecycle.subscriptions.observe(observer)

    # -- orders ------------------------------------------------------------------------------------------------

    def _order(
        self,
        given: Mapping[str, Any],
        prompts: tuple[AgentMessage, ...] | None = None,
        request: StructuredOutput | None = None,
        answers: Mapping[str, Answer] | None = None,
    ) -> Order:
        """Makes the order of a run from its caller's values and the current overrides."""
        options = dict(given)
        apart, cancel = apart_of(options), cancel_of(options)
        return Order(self._check, self._new_run, prompts, request, given_to(self, options), answers, apart, cancel)

    def _wanted(self, output: Any) -> StructuredOutput | None:
        """Returns the request for the value of a run: of the type that it is given, otherwise of the agent's own."""
        if output is not None:
            return output_request(output)
        return None if self._output is None else self._output.again()

    def _answer_order(self, given: Mapping[str, Any], answers: Mapping[str, Answer] | None, output: Any) -> Order:
        if answers is None:  # such an order would mean to continue
            raise is_not("answers", answers, "a mapping from the ids of waiting calls to their answers")
        return self._order(given, request=self._wanted(output), answers=answers)

    def _request(self, target: Any, max_retries: int, given: ValueOptions[Any, Deps]) -> StructuredOutput:
        return StructuredOutput(target, max_retries, given.pop("validate", ()))

    def _value_order(self, given: PromptOptions[Deps], prompt: PromptOrAnswers, request: StructuredOutput) -> Order:
        if isinstance(prompt, Mapping):
            return self._order(given, None, request, prompt)
        return self._order(given, prompts_of(prompt, given), request)

    def _check(self, order: Order, is_idle: bool) -> None:
        """Raises an error if the run of an order is impossible. The agent's history counts only between its runs."""
        history = self._transcript.history if order.apart is None else order.apart.messages
        has_more = order.apart is None and self._queues.may_have_messages()
        if order.prompts is None and is_idle:
            if order.answers is not None:
                order.answers = checked_answers(order.answers, history)
                check_new_arguments(order.answers, history, (order.given or {}).get("tools", self._toolbox))
            elif not history:
                raise NoMessages
            elif (is_answered(history) or is_waiting(history)) and not has_more:
                raise cannot_continue(history)
        check_given(self._config, order.given, self._toolbox)

    def _setup(
        self, given: Given | None, state: MutableMapping[str, Any], request: StructuredOutput | None
    ) -> RunSetup:
        """Returns what a run is started with: the given values, and the agent's own for all others."""
        values = given or {}
        config = config_of(self._config, given)
        return RunSetup(
            replace(config, state=state),
            values.get("tools", self._toolbox),
            values.get("system_prompt", self.system_prompt),
            values.get("deps", config.deps),
            request=request,
        )

    def _new_run(self, order: Order, cancel: CancellationToken, emit: EmitFn, channel: Channel | None) -> Run:
        apart = order.apart
        if apart is None:
            setup, transcript = self._setup(order.given, self.state, order.request), self._transcript
        else:
            state = copy_json(self._initial[4]) if apart.state is None else apart.state
            setup, transcript = self._setup(order.given, state, order.request), Transcript(apart.messages)
            setup = replace(setup, config=replace(setup.config, message_provider=None))
        return Run(
            setup,
            transcript,
            cancel,
            emit,
            run_loop,
            channel=channel,
            answers=None if order.answers is None else dict(order.answers),
            observers=self._lifecycle.subscriptions.observers,
            is_apart=apart is not None,
        )

    def _delegate_setup(self, deps: Any) -> tuple[RunSetup, Sequence[AgentMessage]]:
        """Returns what the run of a copy of this agent is started with, with the caller's deps, and its messages.
        Raises an error if the run is impossible."""
        given = given_to(self, {} if deps is None else {"deps": deps})
        check_given(self._config, given, self._toolbox)
        _, _, _, messages, state = self._initial
        return self._setup(given, copy_json(state), self._wanted(None)), messages
