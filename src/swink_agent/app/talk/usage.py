"""Counts the tokens and the cost of a conversation, and estimates how full the model's window is.

Each run's usage and cost come from its `RunRecord`; `UsageTotals` adds up the runs. Tokens are estimated as compaction
estimates them. Each event adds to the estimate, so the whole history is never counted again.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.app.agent.context import context_window, count_tokens, fixed_tokens
from swink_agent.app.settings.settings import Settings
from swink_agent.core import events
from swink_agent.core.agent.agent import Agent
from swink_agent.core.events import AgentEvent, CompactionReport, ContextCompacted
from swink_agent.core.record import RunRecord
from swink_agent.core.types import AgentMessage, Cost, ModelSpec, Usage


class UsageTotals:
    """Usage, cost and estimated tokens over all runs of a conversation."""

    def __init__(self) -> None:
        self.record = RunRecord()
        """The record of the current run, or of the last one."""
        self.fill = 0.0
        """The used part of the model's real window, from 0 to 1, as of the last turn."""
        self.turns = 0
        """Turns of the current run, or of the last one."""
        self._earlier = (Usage(), Cost())
        """Usage and cost of everything before the current run."""
        self._messages = 0
        """Estimated tokens of the messages in the next request."""
        self._fixed = 0
        self._window = 0
        self._has_prices = False

    @property
    def usage(self) -> Usage:
        return self._earlier[0] + self.record.total_usage

    @property
    def cost(self) -> Cost:
        return self._earlier[1] + self.record.total_cost

    @property
    def tokens(self) -> int:
        """All tokens that the model has read and written."""
        return self.usage.tokens

    @property
    def dollars(self) -> float | None:
        """The cost in dollars; `None` if the model's prices are unknown."""
        amount = self.cost.amount
        return amount if self._has_prices or amount else None

    @property
    def estimate(self) -> tuple[int, int]:
        """Estimated tokens of the next request, and the model's window; 0 as long as there is no model."""
        return self._fixed + self._messages, self._window

    def begin(
        self, agent: Agent, settings: Settings, *, sent: Sequence[AgentMessage], usage: Usage, cost: Cost
    ) -> None:
        """Starts counting for a session. `sent`, `usage` and `cost` are what a resumed session already has."""
        self._earlier, self.record = (usage, cost), RunRecord()
        self.turns = 0
        self._messages = _estimated(sent)
        self.set_agent(agent, settings)

    def set_agent(self, agent: Agent, settings: Settings) -> None:
        """Takes over the window, the prices and the fixed tokens of another model, prompt or set of tools."""
        self._window = max(context_window(agent.model, settings)[0], 1)
        prompt = agent.system_prompt if isinstance(agent.system_prompt, str) else ""
        self._fixed = fixed_tokens(prompt, agent.tools)
        self._has_prices = _has_prices(agent.model)
        self._refill()

    def said(self, messages: Sequence[AgentMessage]) -> None:
        """Adds the messages that begin a run to the estimate."""
        self._messages += _estimated(messages)

    def unsaid(self, messages: Sequence[AgentMessage]) -> None:
        """Takes messages out of the estimate again, if their run did not reach the model."""
        self._messages -= _estimated(messages)

    def begin_run(self) -> None:
        self._earlier, self.record = (self.usage, self.cost), RunRecord()
        self.turns = 0

    def on_event(self, event: AgentEvent) -> None:
        if self.record.is_over:  # `/compact` between two runs: the record of a run ignores its events
            self._count_between_runs(event)
        self.record.feed(event)
        match event:
            case events.MessageEnd(message=message):
                self._messages += count_tokens(message)
            case events.MessagesInjected(messages=messages):
                self._messages += _estimated(messages)
            case ContextCompacted(report=report):
                self.shrink(report)
            case events.TurnStart():
                self.turns += 1
            case events.TurnEnd(tool_results=results):
                self._messages += _estimated(results)
                self._refill()
            case events.AgentEnd():
                self._refill()
            case _:
                pass

    def cut(self, messages: Sequence[AgentMessage]) -> None:
        """Estimates again after the history was cut to these messages."""
        self._messages = _estimated(messages)
        self._refill()

    def _count_between_runs(self, event: AgentEvent) -> None:
        match event:
            case ContextCompacted(report=spent) | (events.UsageAdded() as spent):
                usage, cost = self._earlier
                self._earlier = (usage + spent.usage, cost + spent.cost)
            case _:
                pass

    def shrink(self, report: CompactionReport) -> None:
        """Reduces the estimate by the report's ratio, because the report counts its tokens differently."""
        self._messages = round(self._messages * min(report.tokens_after / max(report.tokens_before, 1), 1.0))
        self._refill()

    def _refill(self) -> None:
        self.fill = min((self._fixed + self._messages) / max(self._window, 1), 1.0)


def _estimated(messages: Sequence[AgentMessage]) -> int:
    return sum([count_tokens(message) for message in messages])


def _has_prices(model: ModelSpec) -> bool:
    if model.provider == "local":
        return True  # a local model is free
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(model)
    return info is not None and bool(info.prices.input or info.prices.output)
