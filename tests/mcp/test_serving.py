"""Tools of an agent for clients of the package `mcp`."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Defer, Image, tool
from swink_agent.core.policy import PolicyContext, PreDispatchContext, Skip
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Base64Source, FileSource, Text
from swink_agent.mcp import as_mcp_server
from swink_agent.testing import scripted, text


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Deletes."""
    return f"deleted {path}"


@tool
def leak() -> str:
    """Tells a secret."""
    return "the key is 9d8c7b6a5f4e3d2c1b0a"


@tool
def fail() -> str:
    """Fails."""
    raise RuntimeError("out of order")


@tool
def picture() -> Image:
    """Draws."""
    return Image(Base64Source("image/png", "iVBORw=="))


@tool
async def count(to: int, ctx: ToolContext) -> str:
    """Counts."""
    for number in range(to):
        ctx.update(str(number))
        await asyncio.sleep(0.06)
    return "counted"


started = asyncio.Event()


async def _asked(server: Any, name: str, **arguments: Any) -> Any:
    from mcp import Client

    async with Client(server) as client:
        return await client.call_tool(name, arguments)


async def test_a_client_lists_and_calls_the_tools() -> None:
    from mcp import Client

    async with Client(as_mcp_server([add, fail, picture], name="mine")) as client:
        listed = (await client.list_tools()).tools
        assert [item.name for item in listed] == ["add", "fail", "picture"]
        assert listed[0].description == "Adds two numbers."
        assert listed[0].input_schema == add.parameters_schema
        assert (await client.call_tool("add", {"a": 2, "b": 3})).content[0].text == "5"
        wrong = await client.call_tool("add", {"a": "two"})
        assert wrong.is_error
        assert "invalid arguments for add" in wrong.content[0].text
        failed = await client.call_tool("fail", {})
        assert (failed.is_error, failed.content[0].text) == (True, "RuntimeError: out of order")
        assert "unknown tool 'nothing'" in (await client.call_tool("nothing", {})).content[0].text
        drawn = (await client.call_tool("picture", {})).content[0]
        assert (drawn.type, drawn.mime_type, drawn.data) == ("image", "image/png", "iVBORw==")


@pytest.mark.table
@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        (add, {}, "^tools_or_agent must be a list of tools, or an Agent, not a FunctionTool$"),
        (Agent, {}, "^tools_or_agent must be a list of tools, or an Agent, not the class Agent"),
        ([add], {"approve": True}, "^approve must be a function, or None, not a bool$"),
        ([add], {"redactor": ["key"]}, "^redactor must be a Redactor, or None, not a list$"),
        ([add], {"name": 3}, "^name must be a string, not an int$"),
    ],
)
def test_wrong_arguments_are_refused(given: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        as_mcp_server(given, **options)


async def test_a_call_that_cannot_be_answered_here_says_what_it_waits_for() -> None:
    @tool(external=True)
    def ship() -> str:
        """Ships."""
        raise AssertionError

    told = (await _asked(as_mcp_server([ship]), "ship")).content[0].text
    assert told == "the call waits for a result of the application, which cannot be given here"
    told = (await _asked(as_mcp_server([delete], approve=lambda _: Defer()), "delete", path="x")).content[0].text
    assert told == "the call waits for an approval, which cannot be given here"


async def test_a_picture_in_a_file_is_sent(tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\nrest"
    (tmp_path / "plot").write_bytes(data)

    @tool
    def plot(which: str) -> Image:
        """Plots."""
        return Image(FileSource(str(tmp_path / which)))

    server = as_mcp_server([plot])
    drawn = (await _asked(server, "plot", which="plot")).content[0]
    assert (drawn.type, drawn.mime_type, b64decode(drawn.data)) == ("image", "image/png", data)
    missing = (await _asked(server, "plot", which="none")).content[0].text
    assert missing.startswith("[image, which cannot be sent: ")


async def test_tools_that_depend_on_the_turn_are_listed_and_called() -> None:
    from mcp import Client

    async def of_the_turn(ctx: PolicyContext[str]) -> list[Any]:
        return [add] if ctx.deps == "ada" else []

    def optional(ctx: PolicyContext[str] | None = None) -> list[Any]:
        return [add]

    for tools in (of_the_turn, optional):
        agent = Agent("scripted:x", stream_fn=scripted(text("never asked")), tools=tools, deps="ada")
        async with Client(as_mcp_server(agent)) as client:
            assert [item.name for item in (await client.list_tools()).tools] == ["add"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"


async def test_tools_that_cannot_be_had_are_an_error_of_the_call() -> None:
    def broken() -> list[Any]:
        raise RuntimeError("no database today")

    result = await _asked(as_mcp_server(Agent("scripted:x", stream_fn=scripted(), tools=broken)), "add", a=1, b=2)
    assert (result.is_error, result.content[0].text) == (True, "tools failed: RuntimeError: no database today")


async def test_tools_that_need_approval_run_if_it_is_given() -> None:
    refused = await _asked(as_mcp_server([delete]), "delete", path="x")
    assert refused.is_error
    assert "it needs approval" in refused.content[0].text
    seen: list[Any] = []

    def approve(request: Any) -> bool:
        seen.append(request.arguments)
        return request.arguments["path"] == "x"

    server = as_mcp_server([delete], approve=approve)
    assert (await _asked(server, "delete", path="x")).content[0].text == "deleted x"
    assert (await _asked(server, "delete", path="y")).is_error
    assert seen == [{"path": "x"}, {"path": "y"}]


async def test_an_agent_s_policies_approval_and_masking_hold() -> None:
    class NoNegatives:
        name = "no negatives"

        def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
            return Skip("no negatives here") if ctx.arguments.get("a", 0) < 0 else None

    agent = Agent(
        "scripted:x",
        stream_fn=scripted(text("never asked")),
        tools=[add, delete, leak],
        policies=[NoNegatives()],
        approve=lambda request: True,
        redactor=Redactor(["9d8c7b6a5f4e3d2c1b0a"], environment={}),
    )
    server = as_mcp_server(agent)
    assert (await _asked(server, "add", a=1, b=1)).content[0].text == "2"
    assert "no negatives here" in (await _asked(server, "add", a=-1, b=1)).content[0].text
    assert (await _asked(server, "delete", path="x")).content[0].text == "deleted x"
    assert "9d8c7b6a" not in (await _asked(server, "leak")).content[0].text
    assert len(agent.messages) == 0


async def test_a_mask_of_the_agent_holds_for_clients_and_its_other_slots_are_not_asked() -> None:
    class NoNumbers:
        name = "no_numbers"

        def mask(self, text: str) -> str:
            return text.replace("3", "[number]")

        def pre_turn(self, ctx: PolicyContext) -> None:
            raise AssertionError("no model of the agent is asked")

    agent = Agent("test:model", stream_fn=scripted(), tools=[add], policies=[NoNumbers()])
    assert (await _asked(as_mcp_server(agent), "add", a=1, b=2)).content[0].text == "[number]"


async def test_updates_are_progress_and_a_cancelled_call_is_cancelled() -> None:
    from mcp import Client

    ended = asyncio.Event()

    @tool
    async def wait(ctx: ToolContext) -> AgentToolResult:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return AgentToolResult.text("")

    progress: list[str | None] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with Client(as_mcp_server([count, wait])) as client:
        result = await client.call_tool("count", {"to": 2}, progress_callback=hear)
        assert result.content[0].text == "counted"
        assert progress == ["0", "1"]
        calling = asyncio.create_task(client.call_tool("wait", {}))
        await asyncio.sleep(0.1)
        calling.cancel()
        async with asyncio.timeout(5):
            await ended.wait()
    with pytest.raises(asyncio.CancelledError):
        await calling


@pytest.mark.table
@pytest.mark.parametrize(
    ("result", "said", "structured"),
    [
        (AgentToolResult.text("cut \udcff"), "cut ?", None),
        (AgentToolResult((Text("cut \udcff"),), {"structured": {"a": "\udcff"}}), "cut ?", {"a": "?"}),
        (AgentToolResult((Text("fine"),), {"structured": {"a": float("nan")}}), "fine", {"a": None}),
        (AgentToolResult((Text("fine"),), {"structured": {"a": Path("b")}}), "fine", {"a": "b"}),
    ],
)
async def test_a_result_that_is_not_json_does_not_end_the_server(result: Any, said: str, structured: Any) -> None:
    @tool
    def odd() -> AgentToolResult:
        """Returns it."""
        return result

    answer = await _asked(as_mcp_server([odd]), "odd")
    answer.model_dump_json()
    assert [part.text for part in answer.content] == [said]
    assert answer.structured_content == structured
