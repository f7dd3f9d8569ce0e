"""`swink -p … --command NAME`."""

from __future__ import annotations

from typing import Any

from swink_agent.testing import FakeProvider


async def test_a_command_of_ones_own_becomes_the_prompt(swink: Any) -> None:
    place = swink.home / "config" / "commands"
    place.mkdir(parents=True)
    (place / "review.md").write_text("Review $1.")
    async with FakeProvider("anthropic", ["ok", "ok"]) as provider:
        swink.use(provider)
        options = ("--tools", "none", "--command", "review")
        assert (await swink("-p", "a.py", *options)).code == 0
        assert (await swink("-p", *options)).code == 0
    sent = [body["messages"][0]["content"][0]["text"] for body in provider.bodies]
    assert sent == ["Review a.py.", "Review ."]
    wrong = await swink("-p", "x", "--command", "revue")
    assert (wrong.code, "did you mean review?" in wrong.stderr) == (2, True)
