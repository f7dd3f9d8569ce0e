"""Agents for embedded.yaml: the smallest model on this machine, forced to call a tool or to give a value.

A case's `metadata.tool` names the tool that the model must call; `required` is any of them. `make` is for
`swink eval run --agent`; `EmbeddedAgents` can be given a stream function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from swink_agent import Agent, AgentTool, MaxTurns, ModelSpec, StreamFn, StreamOptions, tool
from swink_agent.evals import EvalCase, Invocation, Score
from swink_agent.local import LocalStreamFn

MODEL = ModelSpec("local", "smollm2-135m")
_LONGEST_REPLY = 64


def made_a_call(case: EvalCase, invocation: Invocation) -> Score:
    """Whether a tool was called and succeeded."""
    done = [call.name for call in invocation.tool_calls if not call.is_error]
    return Score(float(bool(done)), reason=f"called {', '.join(done) or 'nothing'}")


class EmbeddedAgents:
    """Makes the agent for a case."""

    def __init__(self, stream_fn: StreamFn | None = None) -> None:
        self._stream_fn = stream_fn

    def __call__(self, case: EvalCase, folder: Path) -> EmbeddedAgent:
        if self._stream_fn is None:  # one for all cases: the model is loaded once
            self._stream_fn = LocalStreamFn(MODEL.model_id, context_length=1024)
        return EmbeddedAgent(case, folder, self._stream_fn)


class EmbeddedAgent:
    """One agent, asked for a call or for a value."""

    def __init__(self, case: EvalCase, folder: Path, stream_fn: StreamFn) -> None:
        expected = case.expected_response
        self._schema = None if expected is None else expected.schema
        options = StreamOptions(max_tokens=_LONGEST_REPLY, tool_choice=case.metadata.get("tool", "auto"))
        self.agent = Agent(
            MODEL,
            tools=_tools(folder) if self._schema is None else [],
            stream_fn=stream_fn,
            stream_options=options,
            policies=[] if self._schema is not None else [MaxTurns(1)],
        )

    async def ask(self, message: str) -> Any:
        if self._schema is None:
            return await self.agent.prompt(message)
        return await self.agent.structured_output(message, self._schema)


def _tools(folder: Path) -> list[AgentTool]:
    @tool
    def weather(
        city: Annotated[str, msgspec.Meta(max_length=20)], days: Annotated[int, msgspec.Meta(ge=1, le=9)]
    ) -> str:
        """The weather of a city, for some days."""
        return f"Sunny in {city} for {days} days."

    @tool
    def note(count: Annotated[int, msgspec.Meta(ge=1, le=9)]) -> str:
        """Keeps a number in the file note.txt."""
        (folder / "note.txt").write_text(str(count))
        return "kept"

    return [weather, note]


make = EmbeddedAgents()
