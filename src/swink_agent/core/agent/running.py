"""The code that all methods to run an agent share: from the claim to the result.

Owns what happens before the first event of a run and after its last. The methods are in `agent` and `value_runs`, and
the run itself is in `loop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..cancel import running_loop
from ..context.context import cannot_continue, is_answered, is_waiting
from ..errors import Aborted, NoMessages
from ..events import AgentEvent, CompactionReport
from ..loop import run_loop
from ..output import Channel, EventStream, ViewFn
from ..reply import compact_on_demand
from ..run.announcing import Announcer
from ..run.pending import Answer, checked_answers
from ..run.state import Run
from ..run.turn import TurnTools
from ..tool import Toolbox
from ..types import AgentMessage, AgentResult
from ..values.checks import is_not
from ..values.value import Deps, copy_json
from .agent_state import AgentState
from .claim import Claim
from .delegate import MakeRunFn
from .given import Given, check_given, config_of, given_to
from .structured import StructuredOutput
from .sync import run_sync


class Order(Struct, gc=False):
    """A caller's order for one run."""

    prompts: tuple[AgentMessage, ...] | None = None  # `None` continues from the history
    request: StructuredOutput | None = None  # the value that the model must give, if the caller wants one
    given: Given | None = None  # values for this run only, instead of the agent's own
    answers: Mapping[str, Answer] | None = None  # the answers to calls that wait, if the caller brings any
    view: ViewFn | None = None  # makes the items that a stream yields instead of events


class Running(AgentState[Deps]):
    """The part of `Agent` that runs it."""

    __slots__ = ()

    def _order(
        self,
        given: Mapping[str, Any],
        prompts: tuple[AgentMessage, ...] | None = None,
        request: StructuredOutput | None = None,
        answers: Mapping[str, Answer] | None = None,
    ) -> Order:
        """Makes the order of a run from its caller's values and the current overrides."""
        return Order(prompts, request, given_to(self, given), answers)

    def _answer_order(self, given: Mapping[str, Any], answers: Mapping[str, Answer] | None) -> Order:
        if answers is None:  # such an order would mean to continue
            raise is_not("answers", answers, "a mapping from the ids of waiting calls to their answers")
        return self._order(given, answers=answers)

    def _sync(self, order: Order) -> AgentResult:
        here = running_loop()
        return run_sync(lambda: self._drive(order, blocked=here), self._claims.abort)

    def _stream(self, order: Order) -> EventStream:
        claim = self._claim(order)
        stream = EventStream(
            lambda channel: self._drive(order, claim, channel),
            claim.token,
            lambda: self._claims.release(claim),
            self._subscriptions,
        )
        claim.is_left = stream.channel.is_left
        return stream

    def _claim(self, order: Order, blocked: asyncio.AbstractEventLoop | None = None) -> Claim:
        """Claims the run of an order. Raises an error if it is impossible, before anything has happened."""
        if order.prompts is None and not self.is_running:
            self._check_history(order)
        check_given(self._config, order.given, self._toolbox)
        return self._claims.take(blocked)

    def _check_history(self, order: Order) -> None:
        history = self._transcript.history
        if order.answers is not None:
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
        order: Order,
        claim: Claim | None = None,
        channel: Channel | None = None,
        blocked: asyncio.AbstractEventLoop | None = None,
    ) -> AgentResult:
        """Runs an order, from the claim (unless the caller already has one) to its release.

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
            if self._announcer is not None:
                self._announcer.begin(run.emit, run.supervisor.loop)
            try:
                self._last_result = result = await run.loop(run, order.prompts)
            finally:
                if self._announcer is not None:
                    self._announcer.end()
                self._count(run)
            self._last_error = result.error
            return result
        except (asyncio.CancelledError, GeneratorExit):
            self._last_error = str(Aborted())
            raise
        finally:
            self._claims.release(claim)

    def _new_run(self, claim: Claim, order: Order, channel: Channel | None = None) -> Run:
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
        run = Run(
            config,
            self._transcript,
            toolbox,
            given.get("system_prompt", self.system_prompt),
            claim.token,
            emit,
            run_loop,
            channel,
            request,
            given.get("deps", config.deps),
        )
        run.observers = subscriptions.observers
        run.announcing = self._own_announcer
        return run

    def _own_announcer(self) -> Announcer:
        with self._claims.lock:
            if self._announcer is None:
                self._announcer = Announcer(self._subscriptions.notify)
                if self._run is not None:
                    self._announcer.begin(self._run.emit, self._run.supervisor.loop)
            return self._announcer

    def _viewed(self, view: ViewFn, channel: Channel) -> Callable[[AgentEvent], None]:
        """Returns a function that gives each event to the subscribers, and the view's items for it to the stream."""

        def pushed(event: AgentEvent) -> None:
            self._subscriptions.notify(event)
            view(event, None if self._run is None else self._run.assembler, channel.put)

        return pushed

    def _delegated_run(self, make: MakeRunFn, deps: Any) -> Run:
        """Makes the run of a copy of this agent, with the caller's deps. Raises an error if it is impossible."""
        given = given_to(self, {} if deps is None else {"deps": deps})
        check_given(self._config, given, self._toolbox)
        _, _, _, messages, state = self._initial
        config = replace(config_of(self._config, given), state=copy_json(state))
        return make(config, messages, {"tools": self._toolbox, "system_prompt": self.system_prompt, **(given or {})})

    async def _compact(self, instructions: str | None) -> CompactionReport | None:
        """Runs only the transforms, as a separate run."""
        claim = self._claims.take()
        self._claims.begin(claim)
        try:
            await claim.wait_for_predecessors()
            if not self._config.has_transform:
                return None
            run = self._new_run(claim, self._order({}))
            try:
                return await compact_on_demand(run, instructions)
            finally:
                self._count(run)
        finally:
            self._claims.release(claim)
