"""A replacement for the model of a project's own agents: the real model is never asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AgentResult, AssistantMessage, ModelSpec
from swink_agent.app.evals.evaluation import OwnAgents, StandInModel
from swink_agent.evals import CaseExecutor, EvalCase, EvalTask, load_script
from swink_agent.testing import ScriptedStream, scripted


class Plain:
    """Closes something; its agent is asked directly."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.is_closed = False

    @property
    def agent(self) -> Agent:
        return self._agent

    def close(self) -> None:
        self.is_closed = True


class Asking:
    """Has a way of its own to ask its agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def ask(self, message: str) -> AgentResult:
        return await self.agent.prompt(f"{message}!")


class Keeping(Asking):
    """Asks the agent that it was made with."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._kept = agent

    async def ask(self, message: str) -> AgentResult:
        return await self._kept.prompt(message)


class Fixed(Plain):
    async def ask(self, message: str) -> AgentResult:
        return await self._agent.prompt(message)


async def attempt(tmp_path: Path, wrap: Any) -> tuple[Any, ScriptedStream, list[Any]]:
    (tmp_path / "script.yaml").write_text("replies: {'*': [From the script.]}")
    real = scripted("From the model.")
    made: list[Any] = []

    def factory(case: EvalCase, folder: Path) -> Any:
        made.append(wrap(Agent(ModelSpec("test", "own"), stream_fn=real)))
        return made[-1]

    agents = OwnAgents(factory, stand_in=StandInModel(load_script(tmp_path / "script.yaml")))
    case = EvalCase("one", "One", ["Go"])
    executor = CaseExecutor(agents, folder=tmp_path / "folders")
    return await executor.execute(EvalTask("run", "set", case, 1)), real, made


@pytest.mark.parametrize("wrap", [lambda agent: agent, Plain, Asking], ids=["agent", "property", "ask"])
async def test_a_stand_in_answers_for_the_agent_of_any_factory(tmp_path: Path, wrap: Any) -> None:
    done, real, made = await attempt(tmp_path, wrap)
    assert (done.invocation.response, len(real.requests)) == ("From the script.", 0)
    (reply,) = [message for message in done.invocation.messages if isinstance(message, AssistantMessage)]
    assert (reply.provider, reply.model_id) == ("scripted", "replies"), "reports name who answered"
    assert getattr(made[0], "is_closed", True)


@pytest.mark.parametrize("wrap", [Fixed, Keeping])
async def test_a_subject_that_would_ask_its_real_model_cannot(tmp_path: Path, wrap: Any) -> None:
    done, real, _ = await attempt(tmp_path, wrap)
    assert not real.requests
    if wrap is Fixed:
        assert "no stand-in can replace the model of Fixed: its `ask` needs an `agent`" in done.error
