"""What a transform may know of the run that it works for, and how it asks a model on that run's account.

A transform is a function of messages. `CompactionContext.current()` tells it what such a function cannot know: whether
somebody asked for the compaction, which model the agent uses, what it reported. It is there for what the transform
calls too, so that transforms can be put together. Owns that and the side request. When transforms run is in `loop` and
`reply`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_

import msgspec

from .cancel import CancellationToken
from .config import AgentLoopConfig
from .errors import AgentError
from .policy import PolicyContext, Stop
from .providers import ProviderStreamFn
from .run.failures import as_agent_error
from .run.state import Run, RunLoopFn
from .run.transcript import Transcript
from .stream import StreamFn, StreamOptions
from .tool import Toolbox
from .types import AgentMessage, AssistantMessage, Cost, ModelSpec, ThinkingLevel, Usage, UserMessage

__all__ = ["CompactionContext"]

_CURRENT: ContextVar[CompactionContext | None] = ContextVar("swink_agent_compaction", default=None)


class CompactionContext:
    """The run behind a compaction. It is good for one call of the transforms.

    `is_on_demand` says that `Agent.compact` wants it, below the budget too, with its `instructions`. Replies in the
    messages before `fresh_from` were made from another context than the one that they are in now. `usage` and `cost`
    are what was asked through `ask`, which counts into the run.
    """

    __slots__ = ("_fixed", "_run", "cost", "fresh_from", "instructions", "is_on_demand", "usage")

    def __init__(self, run: Run, *, is_on_demand: bool = False, instructions: str | None = None) -> None:
        self._run = run
        self._fixed: UserMessage | None = None
        self.is_on_demand = is_on_demand
        self.instructions = instructions
        self.fresh_from = run.transcript.fresh_from
        self.usage = Usage()
        self.cost = Cost()

    def __repr__(self) -> str:
        return f"<CompactionContext of {self.model}{', on demand' if self.is_on_demand else ''}>"

    @classmethod
    def current(cls) -> CompactionContext | None:
        """The one behind the transform that is at work; `None` for one that is called by hand."""
        return _CURRENT.get()

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Makes this the current one."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @classmethod
    def alone(cls, model: ModelSpec, loop: RunLoopFn, stream_fn: StreamFn | None = None) -> CompactionContext:
        """One without a run behind it, for a transform that is called by hand. There must be an event loop."""
        config = AgentLoopConfig(model=model, stream_fn=stream_fn or ProviderStreamFn())
        return cls(_side_run(config, "", CancellationToken(), loop))

    @property
    def model(self) -> ModelSpec:
        """The agent's own."""
        return self._run.config.model

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that the run lets a reply have, those to side requests included; `None` without a limit."""
        return self._run.config.stream_options.max_tokens

    @property
    def is_refused(self) -> bool:
        """Whether the run's journal takes no more: the run ends here, and nothing is to be changed any more."""
        return self._run.refusal is not None

    def redact(self, text: str) -> str:
        """The text with the run's secrets masked."""
        return self._run.redactor.redact(text)

    def sizes(self, messages: Sequence[AgentMessage], count: Callable[[AgentMessage], int]) -> list[int]:
        """The tokens of each message. What was counted for an earlier turn is not counted again."""
        transcript = self._run.transcript
        counter, known, sizes = transcript.counted or (None, (), ())
        if counter != count or len(known) > len(messages) or not all(map(is_, known, messages)):
            known, sizes = (), ()
        sizes = [*sizes, *map(count, messages[len(known) :])]
        transcript.counted = count, tuple(messages), tuple(sizes)
        return sizes

    def fixed(self, count: Callable[[AgentMessage], int]) -> int:
        """The tokens of what every request holds besides its messages: the system prompt and the tools."""
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
        """One reply from a model, by default the agent's, asked once and without tools, on the run's account.

        The run's key hook, redactor and abort hold for it, its use counts into the run, and the policies that see
        every call (`every_call`) are asked as for a run of its own. Raises an `AgentError`: that of the request,
        `PolicyStopped`, or what the run's journal refused with (`is_refused`).
        """
        await self._make_durable()
        # A token of its own: what cancels the side request alone, such as a time limit around it, leaves the run be.
        config, token = self._config(model or self.model, stream_fn, max_tokens), self._run.cancel.child()
        side = _side_run(config, system_prompt, token, self._run.loop)
        try:
            result = await side.loop(side, (UserMessage(prompt),))
        finally:
            self.usage += side.usage
            self.cost += side.cost
            self._run.usage += side.usage
            self._run.cost += side.cost
        if result.exception is not None or result.stopped_by is None or result.stopped_by.policy != _OneReply.name:
            result.raise_for_error()
        return next(message for message in reversed(result.messages) if isinstance(message, AssistantMessage))

    async def _make_durable(self) -> None:
        """Waits for the run's journal: also here the model is asked only when everything said so far is safe."""
        recorder = self._run.transcript.recorder
        if recorder is None:
            return
        try:
            await recorder.durable()
        except Exception as error:
            self._run.refusal = as_agent_error(error, "the journal")
            raise self._run.refusal from error

    def _config(self, model: ModelSpec, stream_fn: StreamFn | None, max_tokens: int | None) -> AgentLoopConfig:
        """What the side request is told. It is made anew: what else a run is told is none of its business."""
        own = self._run.config
        is_same = model.provider == own.model.provider
        if stream_fn is None:
            stream_fn = own.stream_fn if is_same else ProviderStreamFn()
        if self.max_tokens is not None:
            max_tokens = min(max_tokens or self.max_tokens, self.max_tokens)
        # A key, headers and fields that were meant for one provider are not for another.
        options = own.stream_options if is_same else StreamOptions(timeout=own.stream_options.timeout)
        options = msgspec.structs.replace(options, max_tokens=max_tokens, tool_choice="auto", cache="none")
        return AgentLoopConfig(
            model=msgspec.structs.replace(model, thinking_level=ThinkingLevel.OFF),
            stream_fn=stream_fn,
            stream_options=options,
            retry_strategy=_Once(),
            get_api_key=own.get_api_key,
            pre_turn_policies=[policy for policy in own.pre_turn_policies if _sees_every_call(policy)],
            post_turn_policies=[*filter(_sees_every_call, own.post_turn_policies), _OneReply()],
            redactor=self._run.redactor,
            sleep=own.sleep,
        )


def _sees_every_call(policy: object) -> bool:
    return bool(getattr(policy, "every_call", False))


class _OneReply:
    """Ends the side request with its reply, also with one that calls tools which are not there."""

    name = "one reply"

    def post_turn(self, ctx: PolicyContext, /) -> Stop:
        return Stop()


class _Once:
    """No second try: whoever asks has another way."""

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return False

    def delay(self, attempt: int, /) -> float:
        return 0.0


def _side_run(config: AgentLoopConfig, system_prompt: str, token: CancellationToken, loop: RunLoopFn) -> Run:
    return Run(config, Transcript(), Toolbox(()), system_prompt, token, _unheard, loop)


def _unheard(event: object) -> None:
    pass
