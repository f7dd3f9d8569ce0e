"""Joined flags: `swink -cp "…"` is `swink -c -p "…"`."""

from __future__ import annotations

import json
from typing import Any

from swink_agent.testing import FakeFailure, FakeProvider


async def test_a_prompt_stands_behind_flags_that_share_its_dash(swink: Any) -> None:
    async with FakeProvider("anthropic", ["One.", "Two.", "Three.", "Four."]) as provider:
        swink.use(provider)
        first = await swink("--tools", "none", "-qp", "first")
        second = await swink("--tools", "none", "-cp", "and the second", "--output", "json")
        third = await swink("--tools", "none", "-qcpthird")
        piped = await swink("--tools", "none", "-cqp", "-", stdin=b"from a pipe")
    assert [first.stdout, third.stdout, piped.stdout] == ["One.\n", "Three.\n", "Four.\n"]
    assert json.loads(second.stdout)["text"] == "Two."
    said = [body["messages"][-1]["content"][-1]["text"] for body in provider.bodies]
    assert said == ["first", "and the second", "third", "from a pipe"]
    assert [len(body["messages"]) for body in provider.bodies] == [1, 3, 5, 7]


async def test_p_without_a_text_may_share_its_dash_too(swink: Any) -> None:
    broken = FakeFailure(400, "out of order")
    async with FakeProvider("anthropic", [broken, "There you are.", "Again."]) as provider:
        swink.use(provider)
        failed = await swink("--tools", "none", "-p", "hello")
        assert failed.code == 1
        at_the_end = await swink("--tools", "none", "-cp")
        nothing_left = await swink("-cp", "--tools", "none")
        joined_behind = await swink("-p", "-cq", "--tools", "none")
    assert (at_the_end.code, at_the_end.stdout) == (0, "There you are.\n")
    assert (nothing_left.code, joined_behind.code) == (2, 2)
    assert "there is nothing to continue" in nothing_left.stderr
    assert "there is nothing to continue" in joined_behind.stderr
