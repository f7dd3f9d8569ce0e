"""`/mcp`: the servers of a conversation, their tools, and a fresh start."""

from __future__ import annotations

import sys
from pathlib import Path

from swink_agent.testing import call, scripted, text
from tests.mcp.raw_server import program

from .conftest import Talk, told


def _settings(tmp_path: Path, **servers: str) -> None:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    tables = [
        f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nsandbox = "off"\n'
        f"args = [\"-I\", \"-S\", \"-c\", '''{program(lines)}''']\n"
        for name, lines in servers.items()
    ]
    (folder / "config.toml").write_text("\n".join(tables))


async def test_the_panel_shows_states_and_tools_and_starts_a_server_anew(talk: Talk, tmp_path: Path) -> None:
    count = tmp_path / "starts"
    counts = f"with open({str(count)!r}, 'a') as file: file.write('x')"
    _settings(tmp_path, one=counts, bad="print('no disk', file=sys.stderr); sys.exit(3)")
    stream = scripted(call("mcp__one__echo", text="hi"), text("done"), text("again"))
    conversation = await talk.open(stream, tools=["read_file"])
    await conversation.submit("/mcp")
    title, items = talk.front.picked[-1]
    assert title == "MCP servers"
    assert [item.key for item in items] == ["one", "bad"]
    assert items[0].detail in ("is starting", "running, 1 tool")  # it was not waited for
    await conversation.submit("go")
    await conversation.settled()
    assert talk.front.questions[0].request.name == "mcp__one__echo"
    assert "MCP server bad: it ended with exit code 3" in told(conversation, "warning")[-1]
    talk.front.picks, talk.front.confirmations = ["one"], ["restart"]
    await conversation.submit("/mcp")
    items = talk.front.picked[-1][1]
    assert items[0].detail == "running, 1 tool"
    assert items[1].detail.startswith("failed: MCP server bad: it ended with exit code 3")
    preview = talk.front.previews[-1]
    assert preview is not None
    assert "mcp__one__echo  Does echo." in [line.text for line in await preview("one")]
    assert "no disk" in "\n".join([line.text for line in await preview("bad")])
    assert told(conversation)[-1] == "the MCP server one was restarted: running, 1 tool"
    assert count.read_text() == "xx"
    await conversation.submit("/mcp restart bad")
    assert "exit code 3" in told(conversation, "error")[-1]
    await conversation.submit("/mcp restart two")
    assert "there are: one, bad" in told(conversation, "error")[-1]
    await conversation.submit("/mcp stop")
    assert "/mcp restart NAME" in told(conversation, "error")[-1]
    await conversation.close()


async def test_other_models_and_sessions_keep_the_servers_and_plan_mode_hides_them(talk: Talk, tmp_path: Path) -> None:
    count = tmp_path / "starts"
    _settings(tmp_path, one=f"with open({str(count)!r}, 'a') as file: file.write('x')")
    stream = scripted(text("one"), text("two"), text("three"), text("four"), text("five"))
    conversation = await talk.open(stream, tools=["read_file"])
    await conversation.submit("go")
    await conversation.settled()
    await conversation.submit("/model anthropic:claude-opus-4-6")
    await conversation.submit("go on")
    await conversation.settled()
    conversation.modes.change_plan()
    await conversation.submit("plan")
    await conversation.settled()
    conversation.modes.change_plan()
    await conversation.settled()
    offered = [[tool.name for tool in request.context.tools] for request in stream.requests]
    both = ["read_file", "mcp__one__echo"]
    assert offered == [both, both, ["read_file"], both]
    await conversation.submit("/reset")
    await conversation.submit("in another session")
    await conversation.settled()
    assert [tool.name for tool in stream.requests[-1].context.tools] == both
    assert count.read_text() == "x"
    await conversation.close()


async def test_the_panel_masks_a_key_on_the_command_line_of_a_server(talk: Talk, tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "AbCdEfGh0123456789" * 5
    (tmp_path / "config").mkdir(exist_ok=True)
    table = f'[mcp.servers.one]\ncommand = "/no/such/program"\nargs = ["--token={key}"]\n'
    (tmp_path / "config" / "config.toml").write_text(table)
    conversation = await talk.open(text("x"))
    await conversation.submit("/mcp")
    preview = talk.front.previews[-1]
    assert preview is not None
    shown = "\n".join([line.text for line in await preview("one")])
    assert "/no/such/program --token=" in shown
    assert "AbCdEfGh" not in shown
    await conversation.close()


async def test_without_servers_the_panel_says_how_to_name_one(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    await conversation.submit("/mcp")
    assert "[mcp.servers.NAME]" in told(conversation)[-1]
    await conversation.close()
