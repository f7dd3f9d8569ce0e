"""MCP servers in the settings, and in the standard agent."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ModelSpec, ToolExecutionEnd, extract_text
from swink_agent.app.agent.standard import AgentOptions, StandardAgent, standard_agent
from swink_agent.app.errors import SettingsError
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import load_settings, parse_file, set_value
from swink_agent.testing import call, scripted, text
from tests.mcp.raw_server import program

TIME = b"""# servers
model = "a:b"

[mcp.servers.time]
command = "uvx"
args = ["mcp-server-time"]
env = { TOKEN = "${TIME_TOKEN}", MODE = "x-${TIME_TOKEN}" }
cwd = "sub"
tools = ["now"]
network = true
write = ["~/.cache"]
sandbox = "landlock"
timeout = 5
start_timeout = 2.5
trust_annotations = true

[mcp.servers.web]
url = "https://user:word@example.com/mcp?key=1"
headers = { Authorization = "Bearer ${WEB_TOKEN}" }
enabled = false
"""


def _servers(data: bytes, environ: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    path = options.pop("path")
    path.write_bytes(data)
    found, secrets = load_settings(path=path, environ=environ or {}, **options).servers()
    return {"secrets": secrets, **{item.name: item for item in found}}


def test_a_table_describes_a_server(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    found = _servers(TIME, {"TIME_TOKEN": "t0k3n-value"}, path=path)
    time, web = found["time"], found["web"]
    assert (time.command, time.args, time.cwd, time.tools) == ("uvx", ("mcp-server-time",), "sub", ("now",))
    assert time.env == {"TOKEN": "t0k3n-value", "MODE": "x-t0k3n-value"}
    assert (time.network, time.write, time.sandbox) == (True, ("~/.cache",), "landlock")
    assert (time.timeout, time.start_timeout, time.trust_annotations, time.enabled) == (5, 2.5, True, True)
    assert (time.source, time.problem, time.transport) == (f"{path}:4", "", "stdio")
    assert time.target == "uvx mcp-server-time"
    assert (web.transport, web.target, web.enabled) == ("http", "https://example.com/mcp", False)
    assert web.problem == "WEB_TOKEN is not set in the environment"
    assert found["secrets"] == ["t0k3n-value"]
    assert "t0k3n" not in repr(time)


@pytest.mark.table
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("[mcp.servers.a]\n", "line 1: mcp.servers.a needs command or url"),
        ('\n[mcp.servers.a]\ncommand = "x"\nurl = "http://x"\n', "line 2: mcp.servers.a has command and url: give one"),
        ('[mcp.servers.a]\ncommand = ""\n', "line 2: mcp.servers.a.command must be the program"),
        ('[mcp.servers.a]\ncommand = "x"\nargs = "y"\n', "line 3: mcp.servers.a.args must be a list of texts"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { A = 1 }\n', "line 3: mcp.servers.a.env must be a table of texts"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { A = "${" }\n', "line 3: mcp.servers.a.env must .*NAME"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { A = "${A-B}" }\n', "line 3: mcp.servers.a.env must .*NAME"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { "A=B" = "x" }\n', "line 3: mcp.servers.a.env: 'A=B' cannot be"),
        (
            '[mcp.servers.a]\nurl = "http://x"\nheaders = { "A b" = "x" }\n',
            "line 3: mcp.servers.a.headers: 'A b' cannot",
        ),
        (
            '[mcp.servers.a]\nurl = "http://x"\nheaders = { A = "x\\ny" }\n',
            "line 3: .*header A must be a text in one line",
        ),
        ('[mcp.servers.a]\nurl = "ftp://x"\n', "line 2: mcp.servers.a.url must be an http"),
        ('[mcp.servers.a]\nurl = "http://x"\nargs = []\n', "line 3: mcp.servers.a.args cannot be used with url"),
        ('[mcp.servers.a]\ncommand = "x"\nheaders = {}\n', "mcp.servers.a.headers cannot be used with command"),
        ('[mcp.servers.a]\ncommand = "x"\ntimeout = 0\n', "line 3: mcp.servers.a.timeout must be a number of seconds"),
        ('[mcp.servers.a]\ncommand = "x"\nwrite = [""]\n', "line 3: mcp.servers.a.write must be a list of folders"),
        ('[mcp.servers.a]\ncommand = "x"\nsandbox = "none"\n', "line 3: mcp.servers.a.sandbox must be one of auto"),
        ('[mcp.servers.a]\ncommand = "x"\ncomand = "y"\n', "line 3: .*did you mean command"),
        ('[mcp.servers.A]\ncommand = "x"\n', "line 1: mcp.servers.A cannot be used: the name of an MCP server"),
        ("mcp.servers.a.b = 3\n", "line 1: mcp.servers.a.b is not a setting of a server"),
        ("mcp = 3\n", "line 1: mcp must be a table"),
        ("[mcp]\nservers = 3\n", "line 2: mcp.servers must be a table"),
        ("[[mcp.servers]]\n", "line 1: mcp.servers must be a table"),
        ("[mcp.clients.a]\n", "mcp.clients is not a setting"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(lines: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as caught:
        parse_file("/f/config.toml", lines.encode())
    assert "/f/config.toml, " in str(caught.value)


def test_a_server_is_written_by_hand(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"edited by hand: \[mcp.servers.NAME\]"):
        set_value("mcp.servers.a.command", "x", path=tmp_path / "config.toml")
    path = tmp_path / "config.toml"
    path.write_bytes(TIME)
    set_value("thinking", "low", path=path)  # other settings are changed as ever
    assert path.read_bytes().endswith(TIME[TIME.index(b"[mcp.servers.time]") :])


@pytest.mark.table
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('command = "x"\nargs = ["y"]\nenv = { A = "b" }\ncwd = "sub"\ntools = ["t"]\nenabled = true', ""),
        ('url = "http://x"\nheaders = { A = "b" }', ""),
        ('command = "x"\nnetwork = true', "may not set network"),
        ('command = "x"\nwrite = ["/"]\nsandbox = "off"', "may not set write and sandbox"),
        ('command = "x"\ntrust_annotations = true', "may not set trust_annotations"),
        ('command = "x"\ntimeout = 1000', "may not set timeout"),
        ('command = "x"\nenv = { A = "${HOME}" }', "may not take values from the environment"),
        ('url = "http://x"\nheaders = { A = "Bearer ${TOKEN}" }', "may not take values from the environment"),
        ('command = "x"\nargs = ["--key=${TOKEN}"]', "may not take values from the environment"),
        ('url = "http://x/${TOKEN}"', "may not take values from the environment"),
        ('command = "x"\ncwd = "../other"', "its cwd is not in the project's folder"),
        ('command = "x"\ncwd = "/"', "its cwd is not in the project's folder"),
    ],
)
def test_a_trusted_project_may_say_only_what_grants_nothing(tmp_path: Path, lines: str, problem: str) -> None:
    project = parse_file(str(tmp_path / ".swink" / "config.toml"), f"[mcp.servers.p]\n{lines}\n".encode())
    found, secrets = load_settings(path=Path("/no/such"), environ={"TOKEN": "secret-one"}, project=project).servers()
    assert problem in found[0].problem
    assert bool(problem) == bool(found[0].problem)
    assert not problem or "TOKEN" not in str(secrets)


def test_of_one_name_the_user_s_counts(tmp_path: Path) -> None:
    project = parse_file("/p/.swink/config.toml", b'[mcp.servers.time]\nurl = "http://evil/"\n')
    assert _servers(TIME, path=tmp_path / "config.toml", project=project)["time"].command == "uvx"


def test_a_variable_that_cannot_be_a_header_is_a_problem_of_its_server(tmp_path: Path) -> None:
    found = _servers(TIME, {"TIME_TOKEN": "t", "WEB_TOKEN": "t0k3n-value\n"}, path=tmp_path / "config.toml")
    assert found["web"].problem == "the value of the header Authorization must be a text in one line"
    assert found["time"].problem == ""


# -- in the standard agent -------------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("config", "data", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "work"


def _agent(work: Path, tables: str, *replies: Any, **flags: Any) -> StandardAgent:
    path = work.parent / "settings.toml"
    path.write_text(tables)
    settings = load_settings(
        path=path, environ={"TOKEN": "s3cr3t-of-the-server"}, flags={"tools": ["read_file"], **flags}
    )
    return standard_agent(
        AgentOptions(
            settings=settings,
            credentials=Credentials(work.parent / "keys.json", environ={}),
            folder=work,
            model=ModelSpec("anthropic", "claude-sonnet-4-6"),
            stream_fn=scripted(*replies),
            uses_servers=True,
        )
    )


def _table(name: str, lines: str = "", more: str = "") -> str:
    source = program(lines).replace("'''", '"""')
    args = f"args = [\"-I\", \"-S\", \"-c\", '''{source}''']"
    return f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\n{args}\nsandbox = "off"\n{more}\n'


async def _results(made: StandardAgent, prompt: str = "go") -> list[str]:
    found: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, ToolExecutionEnd):
            found.append(extract_text(event.result.content))

    with made.agent.subscribe(watch):
        await made.agent.prompt(prompt)
    return found


async def test_the_agent_has_the_tools_of_servers_and_works_without_one_that_fails(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = (
        _table("one", more='env = { KEY = "${TOKEN}" }')
        + _table("bad", "sys.exit(4)")
        + _table("off", more="enabled = false")
    )
    made = _agent(work, tables, call("mcp__one__echo", text="s3cr3t-of-the-server"), text("done"), approve="all")
    with caplog.at_level(logging.WARNING, "swink_agent.mcp"):
        [said] = await _results(made)
    assert "s3cr3t" not in said
    assert [tool.name for tool in made.agent.tools] == ["read_file", "mcp__one__echo"]
    assert "MCP server bad: it ended with exit code 4" in caplog.text
    assert made.servers is not None
    assert {item.name: item.state for item in made.servers.statuses()} == {
        "one": "running",
        "bad": "failed",
        "off": "disabled",
    }
    await made.finish()
    made.close()


async def test_calls_are_asked_about_and_rules_allow_and_deny_them(work: Path) -> None:
    two = 'tools.append(tool("other"))'
    replies = (call("mcp__one__echo", text="hi"), call("mcp__one__other"), text("done"))
    made = _agent(work, _table("one", two), *replies)
    assert all("no one can answer" in said for said in await _results(made))
    await made.finish()
    made = _agent(work, _table("one", two), *replies, allow=["mcp__one__*"], deny=["mcp__one__other"])
    said = await _results(made)
    assert said[0] == "hi"
    assert "unknown tool" in said[1] or "denies it" in said[1]
    assert "mcp__one__other" not in [tool.name for tool in made.agent.tools]
    await made.finish()


async def test_a_change_of_the_list_is_in_the_next_request_and_a_choice_of_tools_holds(work: Path) -> None:
    grows = """
def on_call(id, name, arguments, meta):
    if name == "echo":
        tools.append(tool("grown"))
        say(method="notifications/tools/list_changed")
    text(id, name)
tools.append(tool("unwanted"))
"""
    replies = (call("mcp__one__echo"), call("mcp__one__grown"), text("done"))
    made = _agent(work, _table("one", grows, 'tools = ["echo", "grown"]'), *replies, approve="all")
    assert await _results(made) == ["echo", "grown"]
    assert [tool.name for tool in made.agent.tools] == ["read_file", "mcp__one__echo", "mcp__one__grown"]
    await made.finish()


async def test_a_server_works_in_the_agent_s_folder_and_none_starts_unasked(work: Path) -> None:
    where = "def on_call(id, name, arguments, meta): text(id, os.getcwd())"
    made = _agent(work, _table("one", where), call("mcp__one__echo"), text("done"), approve="all")
    assert made.servers is not None
    assert [item.state for item in made.servers.statuses()] == ["waiting"]
    assert await _results(made) == [str(work)]
    await made.servers.restart("one")
    assert [item.state for item in made.servers.statuses()] == ["running"]
    await made.finish()


def test_a_server_that_cannot_be_used_is_a_warning_before_the_run(work: Path) -> None:
    made = _agent(work, '[mcp.servers.a]\ncommand = "x"\nenv = { A = "${NOT_SET}" }\n', text("done"))
    [warning] = [warning for warning in made.warnings if "MCP" in warning]
    assert "settings.toml:1: the MCP server a is not used: NOT_SET is not set in the environment" in warning
    made.close()


async def test_a_tool_that_is_called_like_one_of_another_server_is_left_out(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = 'tools[:] = [tool("_x"), tool("y")]', 'tools[:] = [tool("x")]'
    made = _agent(work, _table("a", first) + _table("a_", second), call("mcp__a___x"), text("done"), approve="all")
    assert await _results(made) == ["_x"]
    assert [tool.name for tool in made.agent.tools] == ["read_file", "mcp__a___x", "mcp__a__y"]
    assert "MCP server a_: its tool x is left out" in caplog.text
    await made.finish()
