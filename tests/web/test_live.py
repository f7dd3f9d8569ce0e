"""A run over HTTP: prompts, events, questions, steering, stopping."""

from __future__ import annotations

from pathlib import Path

from swink_agent.testing import text

from .conftest import running


async def test_a_prompt_streams_its_run_and_is_on_disk(folder: Path) -> None:
    async with running(folder, text("Hello there.")) as client:
        session = await client.new(title="Greeting")
        events = await client.say(session, "hi")
        names = [name for _, name, _ in events]
        assert names[0] == "state"
        assert [name for name in names if name not in ("state", "message_update")] == [
            "agent_start",
            "turn_start",
            "message_start",
            "message_end",
            "turn_end",
            "agent_end",
        ]
        assert names[-1] == "state"
        numbers = [int(number) for number, _, _ in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        status, found = await client.ask("GET", f"sessions/{session}/messages")
        assert status == 200
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert (found["first"], found["total"]) == (0, 2)
