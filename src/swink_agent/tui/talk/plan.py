"""Plan mode: the agent looks and thinks, and changes nothing until the person says so.

Owns which tools stay, what the model is told, and the words with which a plan is handed over. The tools that need
approval are taken off the agent, so that there is nothing to refuse; what is left cannot change anything.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from swink_agent.core.agent import Agent
from swink_agent.core.tool import AgentTool

__all__ = ["ENTERED", "LABEL", "LEFT", "OFFER", "Mode", "PlanMode", "carrying_out"]

Mode: TypeAlias = Literal["Plan", "Execute"]
LABEL = "PLAN"
ENTERED = "plan mode: nothing is changed until you leave it (Shift+Tab or /plan)"
LEFT = "execute mode: all tools are back"
OFFER = (("yes", "carry the plan out"), ("no", "not now"))

_NOTE = """

You are in plan mode: look at what is there and work out a plan, but change nothing; the tools that could are not \
yours now. Answer with the plan as numbered steps, each with the files and commands that it is about. The user reads \
it and decides whether it is carried out."""


class PlanMode:
    """Whether an agent plans or acts. It holds for the next run."""

    def __init__(self) -> None:
        self.mode: Mode = "Execute"
        self.plan = ""
        """The plan that was made last and not yet handed over."""
        self._tools: tuple[AgentTool, ...] = ()
        self._prompt = ""

    @property
    def label(self) -> str:
        """What output is marked with."""
        return LABEL if self.mode == "Plan" else ""

    def adopt(self, agent: Agent) -> None:
        """Takes an agent over as it was made, and restricts it if this is plan mode."""
        self._tools = agent.tools
        self._prompt = agent.system_prompt if isinstance(agent.system_prompt, str) else ""
        if self.mode == "Plan":
            self._restrict(agent)

    def enter(self, agent: Agent) -> None:
        """From the next run on, only what needs no approval."""
        self.mode, self.plan = "Plan", ""
        self._tools = agent.tools
        self._prompt = agent.system_prompt if isinstance(agent.system_prompt, str) else ""
        self._restrict(agent)

    def leave(self, agent: Agent) -> str:
        """Gives the agent all of its tools back; returns the plan that was made, if one was."""
        self.mode = "Execute"
        agent.tools = self._tools
        agent.system_prompt = self._prompt
        plan, self.plan = self.plan, ""
        return plan

    def _restrict(self, agent: Agent) -> None:
        agent.tools = [tool for tool in self._tools if not tool.requires_approval]
        agent.system_prompt = f"{self._prompt}{_NOTE}"


def carrying_out(plan: str) -> str:
    """The prompt that hands a plan over."""
    return f"Carry out this plan now, step by step; all tools are yours again.\n\n{plan}"
