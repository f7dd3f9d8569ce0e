"""What a conversation has used so far, and how full the model's window is.

Owns the sums. They grow by what each event adds and are never made anew from the history, however long that is. The
estimate of tokens is the one that the compaction works with.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.app.context import context_window, count_tokens, fixed_tokens
from swink_agent.app.settings import Settings
from swink_agent.core.agent import Agent
from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    CompactionReport,
    ContextCompacted,
    MessageEnd,
    MessagesInjected,
    TurnEnd,
)
from swink_agent.core.types import AgentMessage, AgentResult, Cost, ModelSpec, Usage

__all__ = ["UsageTotals"]


class UsageTotals:
    """Usage, cost and the estimate, over all runs of a conversation."""

    def __init__(self) -> None:
        self.usage, self.cost = Usage(), Cost()
        self.fill = 0.0
        """Of the model's real window, from 0 to 1, as of the last turn."""
        self.turns = 0
        self._messages = 0
        """Tokens of the messages that are sent, by estimate."""
        self._fixed = 0
        self._window = 1
        self._has_prices = False
        self._before = (self.usage, self.cost)

    @property
    def tokens(self) -> int:
        """All that were read and written."""
        return self.usage.input + self.usage.cache_read + self.usage.cache_write + self.usage.output

    @property
    def dollars(self) -> float | None:
        """What it cost; `None` where nobody knows what the model costs."""
        return self.cost.total if self._has_prices or self.cost.total else None

    @property
    def estimate(self) -> tuple[int, int]:
        """Tokens that the next request takes, by estimate, and the model's window."""
        return self._fixed + self._messages, self._window

    def begin(
        self, agent: Agent, settings: Settings, *, sent: Sequence[AgentMessage], usage: Usage, cost: Cost
    ) -> None:
        """Starts from a conversation as it is: an empty one, or one that goes on and sends these messages."""
        self.usage, self.cost = usage, cost
        self.turns = 0
        self._messages = _estimated(sent)
        self.set_agent(agent, settings)

    def set_agent(self, agent: Agent, settings: Settings) -> None:
        """Goes on with another model, prompt or set of tools."""
        self._window = max(context_window(agent.model, settings)[0], 1)
        prompt = agent.system_prompt if isinstance(agent.system_prompt, str) else ""
        self._fixed = fixed_tokens(prompt, agent.tools)
        self._has_prices = _has_prices(agent.model)
        self._refill()

    def said(self, messages: Sequence[AgentMessage]) -> None:
        """Messages that begin a run."""
        self._messages += _estimated(messages)

    def unsaid(self, messages: Sequence[AgentMessage]) -> None:
        """Messages that were to begin a run and came back."""
        self._messages -= _estimated(messages)

    def run_began(self) -> None:
        self._before = (self.usage, self.cost)

    def run_ended(self, result: AgentResult) -> None:
        """What the whole run used, with attempts that were repeated: those are in no message."""
        usage, cost = self._before
        self.usage, self.cost = usage + result.usage, cost + result.cost

    def compacted(self, report: CompactionReport) -> None:
        """Less is sent from now on. The report has another estimate, of which only the ratio is of use here."""
        self.usage += report.usage
        self.cost += report.cost
        self._messages = round(self._messages * min(report.tokens_after / max(report.tokens_before, 1), 1.0))
        self._refill()

    def on_event(self, event: AgentEvent) -> None:
        match event:
            case MessageEnd(message=message):
                self.usage += message.usage
                self.cost += message.cost
                self._messages += count_tokens(message)
            case MessagesInjected(messages=messages):
                self._messages += _estimated(messages)
            case ContextCompacted(report=report):
                self.compacted(report)
            case TurnEnd(tool_results=results):
                self.turns += 1
                self._messages += _estimated(results)
                self._refill()
            case AgentEnd():
                self._refill()
            case _:
                pass

    def cut(self, messages: Sequence[AgentMessage]) -> None:
        """The conversation is these messages from now on."""
        self._messages = _estimated(messages)
        self._refill()

    def _refill(self) -> None:
        self.fill = min((self._fixed + self._messages) / self._window, 1.0)


def _estimated(messages: Sequence[AgentMessage]) -> int:
    return sum([count_tokens(message) for message in messages])


def _has_prices(model: ModelSpec) -> bool:
    if model.provider == "local":
        return True  # nothing is what it costs
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(model)
    return info is not None and bool(info.prices.input or info.prices.output)
