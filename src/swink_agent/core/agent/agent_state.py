"""The values that an agent keeps between its runs: configuration, tools, history, state, queues, and its total usage.

Owns these values, and when they may change. `running` starts and ends runs, and `agent` has the methods that an
application calls.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any, Generic

from msgspec.structs import replace

from ..approval import PendingCall
from ..config import AgentLoopConfig
from ..context.context import default_convert_to_llm, is_waiting
from ..errors import AlreadyRunning
from ..journal import Journal, Past, Recorder
from ..output import Subscriptions
from ..run.announcing import Announcer
from ..run.pending import pending_calls
from ..run.state import Run
from ..run.transcript import Transcript
from ..run.turn import TurnTools, as_toolbox
from ..secrets.redaction import Redactor
from ..tool import AgentTool, Toolbox
from ..types import AgentMessage, AgentResult, AssistantMessage, Cost, ModelSpec, ThinkingLevel, Usage
from ..values.value import Deps, FrozenDict, copy_json
from .arguments import as_history, as_model, check_provider
from .claim import Claims
from .history import History
from .options import SystemPrompt, Tools
from .queues import MessageQueues

_NOTHING = Usage(), Cost()
_NO_STATE: dict[str, Any] = FrozenDict()


class AgentState(Generic[Deps]):
    """The part of `Agent` that stays from run to run."""

    __slots__ = (  # an attribute with a misspelt name is refused
        *("_announcer", "_claims", "_config", "_initial", "_last_error", "_last_result", "_queues", "_run", "_spent"),
        *("_subscriptions", "_toolbox", "_transcript", "state", "system_prompt"),
    )

    def __init__(
        self,
        config: AgentLoopConfig,
        claims: Claims,
        queues: MessageQueues,
        toolbox: Toolbox | TurnTools,
        system_prompt: SystemPrompt[Deps],
        messages: tuple[AgentMessage, ...],
    ) -> None:
        self._config = config
        self._claims = claims
        self._queues = queues
        self._toolbox = toolbox
        self._subscriptions = Subscriptions(claims.lock)
        self._announcer: Announcer | None = None
        """Reports work that outlives a call. Made on first use: most agents have no background commands."""
        self._run: Run | None = None
        self._spent = _NOTHING  # usage and cost of all runs that are over
        self._last_error: str | None = None
        self._last_result: AgentResult | None = None
        self.system_prompt: SystemPrompt[Deps] = system_prompt
        """The instructions: a string, or a function that each turn calls once."""
        self.state: MutableMapping[str, Any] = {} if config.state is None else config.state
        """JSON data that tools share and policies can read."""
        self._transcript = self._new_transcript(messages)
        initial_state = copy_json(dict(self.state)) if self.state else _NO_STATE
        self._initial = (config.model, system_prompt, toolbox, messages, initial_state)
        """What `reset` restores, and what copies of the agent begin with."""

    @property
    def model(self) -> ModelSpec:
        """The model that the next run asks; a `provider:model` string may be assigned.

        Raises `ProviderMismatch` for a model of another provider if the agent's `stream_fn` serves only one.
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
        with self._claims.lock:
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
        return self._claims.current is not None

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The current reply as far as it has been streamed; `None` if there is none."""
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

    def _count(self, run: Run) -> None:
        """Adds a run that is over to the agent's usage and cost."""
        with self._claims.lock:
            self._run = None
            usage, cost = self._spent
            spent = run.spent
            if spent != _NOTHING:
                self._spent = (usage + spent[0], cost + spent[1])

    @property
    def has_queued_messages(self) -> bool:
        return self._queues.has_messages()

    @property
    def journal(self) -> Journal | None:
        """The journal that records the agent, if there is one."""
        recorder = self._transcript.recorder
        return None if recorder is None else recorder.journal
