"""The names of servers and of their tools."""

from __future__ import annotations

import pytest

from swink_agent.mcp import McpServer
from swink_agent.mcp.naming import tool_names


def test_a_tool_is_named_after_its_server() -> None:
    assert tool_names("git", ["status", "log-1"]) == {"status": "mcp__git__status", "log-1": "mcp__git__log-1"}
    assert tool_names("git", ["status"], prefix="") == {"status": "status"}
    assert tool_names("git", ["status"], prefix="g_") == {"status": "g_status"}


def test_characters_that_providers_refuse_in_a_name_become_underscores() -> None:
    assert tool_names("a", ["read file.now/ü"]) == {"read file.now/ü": "mcp__a__read_file_now__"}


def test_names_that_are_too_long_or_the_same_end_in_a_digest_of_the_true_one() -> None:
    long = "x" * 80
    names = tool_names("a", [long, "a.b", "a b", "fine"])
    assert len(names[long]) == 64
    assert names[long].startswith("mcp__a__xxx")
    assert names["a.b"] != names["a b"]
    assert names["a.b"].rpartition("_")[0] == names["a b"].rpartition("_")[0] == "mcp__a__a_b"
    assert names["fine"] == "mcp__a__fine"
    # Neither the order nor the process matters.
    assert tool_names("a", ["a b", "fine", "a.b", long]) == names
    assert names["a.b"] == "mcp__a__a_b_2e7336dc"


def test_no_choice_of_names_makes_two_tools_the_same() -> None:
    digest = tool_names("a", ["a b", "a_b"])["a b"].removeprefix("mcp__a__")
    names = tool_names("a", ["a b", "a_b", digest])
    assert len(set(names.values())) == 3
    # These two have the same eight digits.
    alike = [f"{'x' * 80}{number}" for number in (55038, 95062)]
    assert len(set(tool_names("a", alike).values())) == 2
    assert all(len(name) <= 64 for name in tool_names("a", alike).values())


@pytest.mark.table
@pytest.mark.parametrize("name", ["", "A", "a__b", "x" * 21, "a b", "ä", "a.b", "a\n", 3, None])
def test_a_server_s_name_is_short_and_plain(name: object) -> None:
    with pytest.raises(ValueError, match="name of an MCP server"):
        McpServer.stdio("x", name=name)  # type: ignore[arg-type]


def test_a_prefix_is_plain_too() -> None:
    with pytest.raises(TypeError, match=r"^prefix must be a string, not an int$"):
        tool_names("git", ["a"], prefix=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefix"):
        tool_names("a", ["b"], prefix="a b")


@pytest.mark.table
@pytest.mark.parametrize(
    "make",
    [
        lambda: McpServer.http("ftp://x", name="a"),
        lambda: McpServer.http("", name="a"),
        lambda: McpServer.http("http://x:99999/", name="a"),
        lambda: McpServer.stdio("x", name="a", cwd=""),
        lambda: McpServer.stdio("x", name="a", write=[""]),
        lambda: McpServer.stdio("", name="a"),
        lambda: McpServer.stdio("x", name="a", timeout=0),
        lambda: McpServer.stdio("x", name="a", sandbox="none"),
        lambda: McpServer.stdio("x", name="a", start_timeout=-1),
        lambda: McpServer.stdio("x", name="a", env={"A=B": "c"}),
        lambda: McpServer.stdio("x", name="a", env={"": "c"}),
        lambda: McpServer.stdio("x", name="a", env={"A": "b\0c"}),
        lambda: McpServer.stdio("x", name="a", env={"A": 1}),  # type: ignore[dict-item]
        lambda: McpServer.http("http://x/", name="a", headers={"A b": "c"}),
        lambda: McpServer.http("http://x/", name="a", headers={"A": "b\nc"}),
        lambda: McpServer.http("http://x/", name="a", headers={"A": None}),  # type: ignore[dict-item]
    ],
)
def test_mistakes_are_told_before_anything_starts(make: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        make()  # type: ignore[operator]


@pytest.mark.parametrize("name", ["network", "trust_annotations"])
def test_a_text_does_not_open_what_it_says_to_keep_closed(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False, not a str"):
        McpServer.stdio("uvx", name="time", **{name: "no"})  # pyright: ignore[reportArgumentType]


def test_only_a_mapping_gives_variables_and_headers() -> None:
    with pytest.raises(TypeError, match="env must be a mapping"):
        McpServer.stdio("uvx", name="time", env=["TOKEN"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="headers must be a mapping"):
        McpServer.http("http://127.0.0.1", name="time", headers=["Authorization"])  # pyright: ignore[reportArgumentType]
