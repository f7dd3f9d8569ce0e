"""The agent: a loop with a memory, queues, subscribers, and an abort button.

Owns the state between runs and the rule of one run at a time. What happens in a run is in `loop`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast, overload

import msgspec.structs

from .agent_parts.claim import Claim
from .agent_parts.history import History
from .agent_parts.queues import MessageQueues, QueueMode
from .agent_parts.subscriptions import Subscription, Subscriptions
from .approval import ApprovalMode, ApproveFn
from .cancel import running_loop
from .checks import as_fallbacks, as_policies, check_prompt
from .config import (
    AgentLoopConfig,
    ConvertToLlmFn,
    GetApiKeyFn,
    MessageProvider,
    SleepFn,
    SystemPrompt,
    ToolExecution,
    TransformContextFn,
)
from .context import default_convert_to_llm, is_answered
from .errors import Aborted, AgentError, AlreadyRunning, InvalidContinue, NoMessages, ProviderMismatch
from .events import AgentEvent, CompactionReport
from .policy import Policy, PostLoopPolicy, PostTurnPolicy, PreDispatchPolicy, PreTurnPolicy
from .providers import ProviderStreamFn
from .retry import DefaultRetryStrategy, RetryStrategy
from .run.event_stream import Channel, EventStream
from .run.transcript import Transcript
from .stream import StreamFn, StreamOptions
from .tool import AgentTool, Toolbox
from .types import (
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Image,
    ImageSource,
    ModelSpec,
    Text,
    ThinkingLevel,
    UserMessage,
    as_messages,
)
from .values import hints
from .values.value import copy_json

__all__ = ["Agent"]

Prompt: TypeAlias = str | AgentMessage | Sequence[str | AgentMessage]
T = TypeVar("T")
log = logging.getLogger("swink_agent")


class Agent:
    """An agent: a model, its tools, its history, and the ways to run, steer and stop it.

    One run at a time. Steering, queues, `abort`, `subscribe`, `wait_for_idle` and `reset` are safe from any thread.
    """

    __slots__ = (
        "__weakref__",
        "_claimed",
        "_config",
        "_converts_by_default",
        "_initial",
        "_last_error",
        "_last_result",
        "_lock",
        "_queues",
        "_run",
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
        system_prompt: SystemPrompt = "",
        tools: Iterable[AgentTool] = (),
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
        self._lock = threading.RLock()  # a stream that is collected while it is held releases the agent
        self._claimed: Claim | None = None
        self._run: hints.Run | None = None
        self._subscriptions = Subscriptions()
        self._last_error: str | None = None
        self._last_result: AgentResult | None = None
        self._queues = MessageQueues(steering_mode, follow_up_mode, message_provider)
        self._toolbox = Toolbox(tools)
        self._converts_by_default = convert_to_llm is None
        self._transcript = self._new_transcript(_messages(messages))
        self.system_prompt = system_prompt
        """The instructions, as a string or as a function that is called once per turn."""
        self.state: MutableMapping[str, Any] = {} if state is None else state
        """JSON-able data that tools share and policies can read."""
        check_prompt(system_prompt)
        by_provider = ProviderStreamFn()
        pairs = as_fallbacks(fallbacks)
        for spec, asked in ((model, stream_fn), *pairs):
            _check_provider(_spec(spec), asked)
        of_any_slot = as_policies(policies, "policies")
        self._config = AgentLoopConfig(
            model=_spec(model),
            stream_fn=by_provider if stream_fn is None else stream_fn,
            stream_options=stream_options or StreamOptions(),
            retry_strategy=retry_strategy or DefaultRetryStrategy(),
            fallbacks=tuple([(_spec(spec), by_provider if other is None else other) for spec, other in pairs]),
            convert_to_llm=convert_to_llm or default_convert_to_llm,
            async_transform_context=async_transform_context,
            transform_context=transform_context,
            get_api_key=get_api_key,
            message_provider=self._queues,
            pre_turn_policies=_policies("pre_turn", pre_turn_policies, of_any_slot),
            pre_dispatch_policies=_policies("pre_dispatch", pre_dispatch_policies, of_any_slot),
            post_turn_policies=_policies("post_turn", post_turn_policies, of_any_slot),
            post_loop_policies=_policies("post_loop", post_loop_policies, of_any_slot),
            approve=approve,
            approval_mode=ApprovalMode(approval_mode),
            tool_execution=tool_execution,
            state=self.state,
            execution_root=execution_root,
            redactor=redactor,
            sleep=sleep or asyncio.sleep,
        )
        self._initial = (
            self._config.model,
            system_prompt,
            self._toolbox,
            tuple(self._transcript.history),
            copy_json(dict(self.state)),
        )

    def __repr__(self) -> str:
        running = ", running" if self.is_running else ""
        return f"<Agent {self.model}, {len(self._toolbox)} tools, {len(self._transcript)} messages{running}>"

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelSpec:
        """The model that the next run asks; a `provider:model` string may be assigned.

        Raises `ProviderMismatch` for a model of another provider if the agent's `stream_fn` belongs to one.
        """
        return self._config.model

    @model.setter
    def model(self, model: str | ModelSpec) -> None:
        spec = _spec(model)
        before, stream_fn = self._config.model.provider, self._config.stream_fn
        if spec.provider != before and getattr(stream_fn, "is_bound", False):
            own = getattr(stream_fn, "provider", before)
            if spec.provider != own and spec.provider not in getattr(stream_fn, "kin", ()):
                raise ProviderMismatch(str(spec), before)
        self._config = msgspec.structs.replace(self._config, model=spec)
        if self._transcript.recorder is not None:
            self._transcript.recorder.model_is(spec)

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self.model.thinking_level

    @thinking_level.setter
    def thinking_level(self, level: ThinkingLevel | str) -> None:
        self.model = msgspec.structs.replace(self.model, thinking_level=ThinkingLevel(level))

    @property
    def tools(self) -> tuple[AgentTool, ...]:
        """The tools of the next run."""
        return self._toolbox.tools

    @tools.setter
    def tools(self, tools: Iterable[AgentTool]) -> None:
        self._toolbox = Toolbox(tools)

    @property
    def messages(self) -> History:
        """The history, live: read it at any time, assign it or change it between runs."""
        return History(lambda: self._transcript.history, self._replace_messages, self._append_messages)

    @messages.setter
    def messages(self, messages: Iterable[str | AgentMessage]) -> None:
        self._replace_messages(_messages(messages))

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
        if self._converts_by_default:
            transcript.convert_by_default()
            transcript.conversation()  # so that a first turn costs no more than others
        return transcript

    @contextmanager
    def _changing_history(self) -> Generator[None]:
        with self._lock:
            if self.is_running:
                raise AlreadyRunning(
                    "the history belongs to the run that goes on: steer() or follow_up(), or wait_for_idle() first"
                )
            yield

    @property
    def is_running(self) -> bool:
        return self._current() is not None

    def _current(self) -> Claim | None:
        """Who has the one run that there can be."""
        claim = self._claimed
        return None if claim is None or claim.is_gone else claim

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The reply that is being streamed, as far as it has come."""
        run = self._run
        assembler = None if run is None else run.assembler
        return None if assembler is None else assembler.snapshot()

    @property
    def pending_tool_calls(self) -> frozenset[str]:
        """The ids of the tool calls that are being executed."""
        run = self._run
        return frozenset() if run is None else frozenset(run.executing)

    @property
    def redactor(self) -> hints.Redactor | None:
        """What keeps secrets out of what others write down of this agent, if it was given one."""
        return self._config.redactor

    @property
    def last_error(self) -> str | None:
        """What the last run ended with, if that was an error or an abort."""
        return self._last_error

    @property
    def last_result(self) -> AgentResult | None:
        """What the last run came to, also one for a value: what that used, with attempts that were repeated. `None`
        before the first has ended, and while another goes on."""
        return self._last_result

    # -- running -----------------------------------------------------------------------------------------------

    async def prompt(self, prompt: Prompt, *, images: Sequence[Image | ImageSource] = ()) -> AgentResult:
        """Runs until the agent stops. What goes wrong on the way is in the result.

        Raises an `AgentError` before anything has happened: `AlreadyRunning` (a run that was aborted or left is waited
        for), `AuthError` for a missing key, `UnknownProvider` for a model that nobody can ask.
        """
        return await self._drive(_prompts(prompt, images), self._claim())

    def prompt_stream(self, prompt: Prompt, *, images: Sequence[Image | ImageSource] = ()) -> EventStream:
        """The same run as a stream of events. What `prompt` raises, it raises at once."""
        return self._stream(_prompts(prompt, images))

    def prompt_sync(self, prompt: Prompt, *, images: Sequence[Image | ImageSource] = ()) -> AgentResult:
        """The same run for code that is not async; it may be called inside a running event loop, and blocks it."""
        return self._sync(lambda here: self._drive(_prompts(prompt, images), self._claim(here)))

    async def continue_loop(self) -> AgentResult:
        """Runs from the history as it is. Raises `NoMessages`, `InvalidContinue`, and what `prompt` raises."""
        return await self._drive(None, self._claim_to_continue())

    def continue_loop_stream(self) -> EventStream:
        """The same as a stream of events."""
        return self._stream(None)

    def continue_loop_sync(self) -> AgentResult:
        """The same for code that is not async."""
        return self._sync(lambda here: self._drive(None, self._claim_to_continue(here)))

    @overload
    async def structured_output(self, prompt: Prompt, target: type[T], max_retries: int = 3) -> T: ...
    @overload
    async def structured_output(
        self, prompt: Prompt, target: dict[str, Any], max_retries: int = 3
    ) -> dict[str, Any]: ...
    @overload
    async def structured_output(self, prompt: Prompt, target: Any, max_retries: int = 3) -> Any: ...
    async def structured_output(self, prompt: Prompt, target: Any, max_retries: int = 3) -> Any:
        """A value of the given JSON Schema (a dict) or type (an instance), which the model must give.

        Raises `StructuredOutputFailed` after `max_retries` more attempts than one, else the error of the run.
        """
        return await self._structured(prompt, target, max_retries)

    async def _structured(
        self, prompt: Prompt, target: Any, max_retries: int, blocked: asyncio.AbstractEventLoop | None = None
    ) -> Any:
        from .structured import StructuredOutput  # on use, like all that reads type hints

        request = StructuredOutput(target, max_retries, self._toolbox)
        return request.value_of(await self._drive(as_messages(prompt), self._claim(blocked), request=request))

    @overload
    def structured_output_sync(self, prompt: Prompt, target: type[T], max_retries: int = 3) -> T: ...
    @overload
    def structured_output_sync(
        self, prompt: Prompt, target: dict[str, Any], max_retries: int = 3
    ) -> dict[str, Any]: ...
    @overload
    def structured_output_sync(self, prompt: Prompt, target: Any, max_retries: int = 3) -> Any: ...
    def structured_output_sync(self, prompt: Prompt, target: Any, max_retries: int = 3) -> Any:
        """The same for code that is not async."""
        return self._sync(lambda here: self._structured(prompt, target, max_retries, here))

    def _sync(self, work: Callable[[asyncio.AbstractEventLoop | None], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, which is told the event loop that stands still meanwhile, if there is one."""
        from .agent_parts.sync import run_sync  # on use: most agents run in async code

        here = running_loop()
        return run_sync(lambda: work(here), self.abort)

    async def compact(self, instructions: str | None = None) -> CompactionReport | None:
        """Runs the transforms now, also below their budget, and says what they took out; `None` if that was nothing.

        The instructions are for whoever writes a summary, such as what must be in it. The history stays as it is. Takes
        the one run that there can be: raises `AlreadyRunning` during a run, `Aborted` after `abort()`.
        """
        claim = self._claim(asks_model=False)
        self._begin(claim)
        try:
            await self._wait_for_predecessors(claim)
            if self._config.transform_context is None and self._config.async_transform_context is None:
                return None
            from .reply import compact_on_demand  # on use, as all that a run needs

            return await compact_on_demand(self._new_run(claim, None, None), instructions)
        finally:
            self._release(claim)

    def _claim(self, blocked: asyncio.AbstractEventLoop | None = None, *, asks_model: bool = True) -> Claim:
        """Takes the one run that there can be; if one is still coming to its end, the one after that.

        `blocked` is the event loop that stands still until then: for a run that ends in it one would wait for ever.
        """
        if asks_model:
            self._check_model()
        with self._lock:
            before = self._current()
            if before is not None and not before.is_ending:
                raise AlreadyRunning
            other = before if blocked is not None else None
            while other is not None:
                if other.loop is blocked:
                    raise AlreadyRunning("the aborted run still ends in this event loop: await wait_for_idle() first")
                other = other.last_before()
            claim = self._claimed = Claim(before)
            return claim

    def _claim_to_continue(self, blocked: asyncio.AbstractEventLoop | None = None) -> Claim:
        if not self.is_running:
            self._check_history()
        return self._claim(blocked)

    def _check_model(self) -> None:
        """Says what makes every request to the model impossible: no adapter, no key."""
        config = self._config
        stream_fn = config.stream_fn
        if isinstance(stream_fn, ProviderStreamFn):
            stream_fn = stream_fn.adapter(config.model)
        check = getattr(stream_fn, "check", None)
        if check is not None and config.get_api_key is None:
            check(config.model, config.stream_options)

    def _check_history(self) -> None:
        history = self._transcript.history
        if not history:
            raise NoMessages
        if is_answered(history) and not self._queues.has_messages() and self._queues.provider is None:
            raise InvalidContinue

    def _release(self, claim: Claim) -> None:
        with self._lock:
            claim.is_over = True
            if self._claimed is claim:
                # One that was cancelled while it waited gives way to the run that it waited for.
                self._claimed = claim.last_before()
                if self._claimed is None:
                    self._run = None
        claim.idle.set()

    def _stream(self, prompts: tuple[AgentMessage, ...] | None) -> EventStream:
        claim = self._claim_to_continue() if prompts is None else self._claim()
        return EventStream(
            lambda channel: self._drive(prompts, claim, channel), claim.token, lambda: self._release(claim)
        )

    async def _drive(
        self,
        prompts: tuple[AgentMessage, ...] | None,
        claim: Claim,
        channel: Channel | None = None,
        request: hints.StructuredOutput | None = None,
    ) -> AgentResult:
        """One run, from the claim to the release. Nothing is awaited after `AgentEnd`, so whoever reads that event
        finds the agent idle."""
        self._begin(claim)
        try:
            if claim.predecessor is not None:
                await self._wait_for_predecessors(claim)
                if prompts is None:
                    self._check_history()
            self._last_error = str(Aborted())  # stands if the task is cancelled and there is no result
            self._run = self._new_run(claim, channel, request)
            self._last_error = self._last_result = None
            self._last_result = result = await self._run.loop(self._run, prompts)
            self._last_error = result.error
            return result
        except asyncio.CancelledError:
            self._last_error = str(Aborted())
            raise
        finally:
            self._release(claim)

    async def _wait_for_predecessors(self, claim: Claim) -> None:
        """Lets the runs before this one, aborted or left, come to their end."""
        while (before := claim.last_before()) is not None:
            await before.idle.wait()
        claim.predecessor = None

    def _begin(self, claim: Claim) -> None:
        """Raises `Aborted` for a stream that was aborted before anybody read it, if another run took its place."""
        with self._lock:
            if claim.loop is None and self._claimed is not claim:
                raise Aborted
            claim.loop = asyncio.get_running_loop()

    def _new_run(self, claim: Claim, channel: Channel | None, request: hints.StructuredOutput | None) -> hints.Run:
        from .loop import run_loop  # on use: an agent may be made long before it is asked anything
        from .run.state import Run

        config, toolbox = msgspec.structs.replace(self._config, state=self.state), self._toolbox
        if request is not None:
            choice = "required" if toolbox else request.name
            config = msgspec.structs.replace(
                config,
                stream_options=msgspec.structs.replace(config.stream_options, tool_choice=choice),
                post_turn_policies=(*config.post_turn_policies, request),
            )
            toolbox = Toolbox((*toolbox.tools, request))
        return Run(
            config,
            self._transcript,
            toolbox,
            self.system_prompt,
            claim.token,
            self._subscriptions.notify if channel is None else self._notify_and(channel),
            run_loop,
            channel,
            frozenset() if request is None else frozenset({request.name}),
            self._subscriptions if channel is None else None,
        )

    # -- while it runs -----------------------------------------------------------------------------------------

    def steer(self, message: Prompt) -> None:
        """Interrupts the agent: the message leads its next turn, and running tools make way for it."""
        self._queues.add("steering", as_messages(message))

    def follow_up(self, message: Prompt) -> None:
        """Gives the agent more to do once it would stop."""
        self._queues.add("follow_up", as_messages(message))

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
        claim = self._claimed
        if claim is not None:
            claim.token.cancel()

    async def wait_for_idle(self) -> None:
        """Returns when no run goes on."""
        claim = self._current()
        if claim is not None:
            await claim.idle.wait()

    def reset(self) -> None:
        """Puts model, system prompt, tools, history and state back as they were at the start, and empties the queues.

        Subscriptions stay. Raises `AlreadyRunning` during a run.
        """
        model, system_prompt, toolbox, messages, state = self._initial
        self._replace_messages(messages)
        self.model, self.system_prompt, self._toolbox = model, system_prompt, toolbox
        self.state.clear()
        self.state.update(copy_json(state))
        self._last_error = self._last_result = None
        self.clear_queues()

    # -- what is written down --------------------------------------------------------------------------------------

    def attach_journal(self, journal: hints.Journal, past: hints.Past | None = None) -> None:
        """Records what the agent does from now on.

        With a past the agent goes on from it: it takes the history, the context, the state, and the model if its
        `stream_fn` serves that. Without one, what the agent is so far is recorded.

        Raises `AlreadyRunning` during a run.
        """
        from .journal import Recorder  # on use: most agents have none

        with self._changing_history():
            recorder = Recorder(journal, past)
            recorder.redactor = self._config.redactor or self._transcript.own_redactor()
            if past is None:
                self._transcript.recorder = recorder
                recorder.model_is(self.model)
                recorder.added(self._transcript.history, "given")
                context = self._transcript.context
                if len(context) != len(self._transcript) or any(
                    sent is not message for sent, message in zip(context, self._transcript.history, strict=True)
                ):
                    recorder.context_replaced(context, None)
                recorder.state_is(self.state)
                return
            self._transcript = self._new_transcript(past.messages)
            if past.context is not None:
                self._transcript.adopt(past.context)
            self.state.clear()
            self.state.update(copy_json(past.state))
            if past.model is not None:
                with suppress(ProviderMismatch):
                    self.model = past.model
            self._transcript.recorder = recorder
            recorder.model_is(self.model)

    @property
    def journal(self) -> hints.Journal | None:
        """What records the agent, if something does."""
        recorder = self._transcript.recorder
        return None if recorder is None else recorder.journal

    def detach_journal(self) -> hints.Journal | None:
        """Records nothing from now on; returns the journal that was there. Raises `AlreadyRunning` during a run."""
        with self._changing_history():
            recorder = self._transcript.recorder
            if recorder is None:
                return None
            self._transcript.recorder = None
            try:
                recorder.state_is(self.state)
            except AgentError as error:
                log.warning("%s", error)
            return recorder.journal

    # -- observers ---------------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[AgentEvent], object]) -> Subscription:
        """Calls `callback` with every event from now on, before the run goes on. One that raises is removed."""
        return self._subscriptions.add(callback)

    def _notify_and(self, channel: Channel) -> Callable[[AgentEvent], None]:
        subscriptions = self._subscriptions

        def emit(event: AgentEvent) -> None:
            if subscriptions.all:
                subscriptions.notify(event)
            channel.push(event)

        return emit


def _check_provider(model: ModelSpec, stream_fn: StreamFn | None) -> None:
    """Refuses a model that the stream function says it does not serve. One that says nothing serves them all."""
    serves = getattr(stream_fn, "serves", None)
    if serves is not None and not serves(model.provider):
        raise ProviderMismatch(str(model), getattr(stream_fn, "provider", "") or "another provider")


def _spec(model: str | ModelSpec) -> ModelSpec:
    if isinstance(model, str):
        return ModelSpec.parse(model)
    if not isinstance(cast("object", model), ModelSpec):
        raise TypeError(f"a {type(model).__name__} names no model; give provider:model or a ModelSpec")
    return model


def _messages(given: Iterable[str | AgentMessage]) -> tuple[AgentMessage, ...]:
    is_several = isinstance(given, Iterable) and not isinstance(given, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    return as_messages(list(given) if is_several else cast("Any", given))


def _policies(slot: str, chosen: Sequence[Any], policies: Sequence[object]) -> tuple[Any, ...]:
    own = as_policies(chosen, f"{slot}_policies") if chosen != () else ()
    return (*own, *[policy for policy in policies if hasattr(policy, slot)])


def _prompts(prompt: Prompt, images: Sequence[Image | ImageSource]) -> tuple[AgentMessage, ...]:
    if not images:
        prompts = as_messages(prompt)
        if not prompts:
            raise ValueError("there is no message in the prompt; continue_loop() goes on without one")
        return prompts
    if not isinstance(prompt, str):
        raise TypeError("images go with a prompt that is a string; put them into the messages' content instead")
    pictures = [image if isinstance(image, Image) else Image(image) for image in images]
    return (UserMessage([Text(prompt), *pictures]),)
