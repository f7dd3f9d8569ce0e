"""Plan mode: the agent reads and plans, but changes nothing until the user agrees.

The agent loses the tools that need approval; the others cannot change anything. The model gets a note about the mode.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from swink_agent.app.settings.definitions import TOOLS_OF_BASH
from swink_agent.core.agent.agent import Agent
from swink_agent.core.run.turn import SystemPrompt, Tools, wrapped_prompt, wrapped_tools
from swink_agent.core.tool import AgentTool

Mode: TypeAlias = Literal["Plan", "Execute"]
LABEL = "PLAN"
ENTERED = "plan mode: nothing is changed until you leave it ({ways})"
LEFT = "execute mode: all tools are back"
CARRYING_OUT = "Carry out this plan now, step by step; all tools are available again.\n\n"
OFFER = (("yes", "carry the plan out"), ("no", "not now"))

_NOTE = """

You are in plan mode: look at what is there and work out a plan, but change nothing; the tools that could are not \
available now. Answer with the plan as numbered steps, each with its files and commands. The user reads it and decides \
whether to carry it out."""


class PlanMode:
    """Whether an agent plans or acts. A change applies from the next run on."""

    def __init__(self) -> None:
        self.mode: Mode = "Execute"
        self.plan = ""
        """The last plan, until it is sent or dropped."""
        self._tools: Tools = ()
        self._prompt: SystemPrompt = ""

    @property
    def label(self) -> str:
        return LABEL if self.mode == "Plan" else ""

    def adopt(self, agent: Agent) -> None:
        """Uses a new agent, which has all of its tools, and restricts it if plan mode is on."""
        self._tools = agent.given_tools
        self._prompt = agent.system_prompt
        if self.mode == "Plan":
            agent.tools = wrapped_tools(self._tools, _that_changes_nothing)
            agent.system_prompt = wrapped_prompt(self._prompt, lambda own: own + _NOTE)

    def enter(self, agent: Agent) -> None:
        """Removes the tools that need approval, from the next run on."""
        self.mode, self.plan = "Plan", ""
        self.adopt(agent)

    def leave(self, agent: Agent) -> str:
        """Gives the agent all of its tools back; returns the plan, or an empty text."""
        self.mode = "Execute"
        agent.tools = self._tools
        agent.system_prompt = self._prompt
        plan, self.plan = self.plan, ""
        return plan


def _that_changes_nothing(tool: AgentTool) -> AgentTool | None:
    return None if tool.requires_approval or tool.name in TOOLS_OF_BASH else tool
