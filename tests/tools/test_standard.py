"""The set of built-in tools, and properties that all of them have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import swink_agent.tools
from swink_agent import Agent, AgentTool, ModelSpec, ToolContext, ToolError, ToolResultMessage, extract_text
from swink_agent.core.schemas.validation import compile_schema
from swink_agent.sandbox import SandboxError, SandboxProfile, open_sandbox
from swink_agent.testing import call, scripted, text
from swink_agent.tools import CheckpointStore, ReadFileTool, Workspace, WriteFileTool, standard_tools

MODEL = ModelSpec("test", "model")


@pytest.fixture
def tools(folder: Path) -> list[AgentTool]:
    return standard_tools(folder)


def test_the_set_is_complete_and_asks_where_something_can_change(tools: list[AgentTool]) -> None:
    assert {tool.name: tool.requires_approval for tool in tools} == {
        "read_file": False,
        "write_file": True,
        "edit_file": True,
        "list_dir": False,
        "search": False,
        "bash": True,
        "bash_output": False,
        "bash_stop": False,
    }


def test_the_descriptions_name_every_greatest_number(tools: list[AgentTool]) -> None:
    bounds = {
        (tool.name, name): (schema["maximum"], schema["description"])
        for tool in tools
        for name, schema in tool.parameters_schema["properties"].items()
        if "maximum" in schema
    }
    assert {("search", "limit"), ("bash", "timeout"), ("list_dir", "depth")} <= set(bounds)
    for bound, description in bounds.values():
        assert f" {bound:g}" in description


def test_each_is_described_well_and_briefly(tools: list[AgentTool]) -> None:
    for tool in tools:
        compile_schema(tool.parameters_schema)
        assert tool.label
        assert 60 < len(tool.description) < 800, tool.name
        assert tool.parameters_schema["additionalProperties"] is False
        for field in tool.parameters_schema["properties"].values():
            assert field.get("description") or field["type"] == "array"


def test_no_schema_can_speak_of_the_sandbox_or_the_folder(tools: list[AgentTool]) -> None:
    fields = {name for tool in tools for name in tool.parameters_schema["properties"]}
    assert fields.isdisjoint({"sandbox", "root", "cwd", "folder", "profile", "network", "env", "environment"})


def test_the_file_tools_share_one_workspace(tools: list[AgentTool]) -> None:
    files: list[Any] = [tool for tool in tools if tool.name in ("read_file", "write_file", "edit_file", "list_dir")]
    assert len({id(tool.workspace) for tool in files}) == 1


async def test_file_tools_respect_what_a_profile_hides_and_protects(folder: Path, use: Any) -> None:
    (folder / "keys").mkdir()
    (folder / "keys/one").write_text("key")
    profile = SandboxProfile(write=(str(folder),), hidden=(str(folder / "keys"),), protected=("Makefile",))
    by_name = {tool.name: tool for tool in standard_tools(folder, profile)}
    assert "hidden" in extract_text((await use(by_name["read_file"], path="keys/one")).content)
    assert "protected" in extract_text((await use(by_name["write_file"], path="Makefile", content="x")).content)


async def test_an_agent_reads_and_edits_and_hears_of_a_change(folder: Path) -> None:
    workspace = Workspace(folder)
    by_name = {tool.name: tool for tool in standard_tools(workspace)}
    (folder / "a.txt").write_text("one\n")
    stream = scripted(
        call("read_file", path="a.txt"),
        call("edit_file", path="a.txt", edits=[{"old": "one", "new": "two"}]),
        call("write_file", path="a.txt", content="three\n"),
        text("done"),
    )
    tools = [by_name[name] for name in ("read_file", "edit_file", "write_file")]

    def approve(request: Any) -> bool:
        if request.name == "write_file":
            (folder / "a.txt").write_text("somebody's\n")
        return True

    result = await Agent(MODEL, tools=tools, stream_fn=stream, approve=approve).prompt("go")
    results = [extract_text(item.content) for item in result.messages if isinstance(item, ToolResultMessage)]
    assert results == [
        "one\n",
        "Edited a.txt: 1 replacement, at line 1.",
        "a.txt was not written: it was changed since you read it.\nTo change a part of it, use edit_file. To replace "
        "all of it, call write_file again. It holds now:\nsomebody's\n",
    ]
    assert (folder / "a.txt").read_text() == "somebody's\n"


async def test_each_stands_alone(folder: Path, use: Any) -> None:
    await use(WriteFileTool(str(folder)), path="a", content="x")
    assert extract_text((await use(ReadFileTool(folder), path="a")).content) == "x"


@pytest.mark.parametrize("extra", ["nothing", "checkpoints", "another folder"])
def test_commands_may_commit_in_a_subfolder_of_a_repository(tmp_path: Path, extra: str) -> None:
    (work := tmp_path / "repository" / "sub").mkdir(parents=True)
    (other := tmp_path / "other").mkdir()
    subprocess.run(["git", "init", "-q", str(work.parent)], check=True, timeout=60)
    more: dict[str, Any] = {
        "nothing": {},
        "checkpoints": {"checkpoints": CheckpointStore(tmp_path / "store")},
        "another folder": {"also": [other]},
    }[extra]
    opened: list[SandboxProfile] = []

    def refuse(profile: SandboxProfile) -> Any:
        opened.append(profile)
        raise SandboxError("only the profile matters here")

    *_, bash = standard_tools(work, open_sandbox=refuse, **more)
    with pytest.raises(ToolError, match="only the profile"):
        bash.approval_scope({"command": "git commit"})  # type: ignore[attr-defined]
    others = (str(other),) if extra == "another folder" else ()
    assert opened[0].write == (str(work), str(work.parent / ".git"), *others)


def test_importing_the_room_loads_no_tool() -> None:
    code = (
        "import sys, swink_agent.tools as tools\n"
        "loaded = [name for name in sys.modules if name.startswith('swink_agent.tools.')]\n"
        "assert not loaded, loaded\n"
        "assert all(hasattr(tools, name) for name in tools.__all__)\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=30)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = swink_agent.tools.Nothing


async def test_further_folders_are_reached_by_absolute_paths_and_nothing_else_is(tmp_path: Path) -> None:
    root, other, third = tmp_path / "work", tmp_path / "other", tmp_path / "third"
    for place in (root, other, third):
        place.mkdir()
        (place / "a.txt").write_text(f"in {place.name}\n")
    (other / "out").symlink_to(third, target_is_directory=True)
    (tmp_path / "link").symlink_to(other, target_is_directory=True)
    tools = {tool.name: tool for tool in standard_tools(root, "off", also=[tmp_path / "link"])}
    assert str(tmp_path / "link") in tools["read_file"].description

    async def read(path: object) -> str:
        return extract_text((await tools["read_file"].execute({"path": str(path)}, ToolContext())).content)

    assert "in work" in await read("a.txt")
    assert "in work" in await read(root / "a.txt")
    assert "in other" in await read(other / "a.txt")
    assert "in other" in await read(tmp_path / "link" / "a.txt")
    for path in ("../other/a.txt", third / "a.txt", other / "out" / "a.txt", other / ".." / "third" / "a.txt"):
        assert "in third" not in await read(path)
    written = await tools["write_file"].execute({"path": f"{other}/new.txt", "content": "x"}, ToolContext())
    assert not written.is_error
    assert (other / "new.txt").read_text() == "x"
    scope = tools["write_file"].approval_scope({"path": f"{other}/new.txt"})  # type: ignore[attr-defined]
    assert (scope["folder"], scope["path"]) == (str(other), "new.txt")
    found = await tools["search"].execute({"pattern": "in other", "path": str(other)}, ToolContext())
    assert "a.txt" in extract_text(found.content)


async def test_paths_of_a_further_folder_are_named_unambiguously(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    for place in (root, other):
        place.mkdir()
        (place / "a.txt").write_text(f"in {place.name}\n")
    tools = {tool.name: tool for tool in standard_tools(root, "off", also=[other])}
    note = f"[names here are those of {other}: write {other}/NAME to use one]"
    for name, arguments in {
        "list_dir": {"path": str(other)},
        "search": {"pattern": "in", "path": str(other)},
        "write_file": {"path": f"{other}/new.txt", "content": "x"},
        "edit_file": {"path": f"{other}/a.txt", "edits": [{"old": "in", "new": "out of"}]},
    }.items():
        result = await tools[name].execute(arguments, ToolContext())
        assert extract_text(result.content).endswith(note), name
        if name.endswith("_file"):
            assert result.details["path"] == arguments["path"]
    read = await tools["read_file"].execute({"path": f"{other}/a.txt"}, ToolContext())
    assert extract_text(read.content) == "out of other\n", "a text comes as it is"
    assert note not in extract_text((await tools["list_dir"].execute({"path": str(root)}, ToolContext())).content)


async def test_with_further_folders_nobody_is_asked_about_what_would_be_refused_either(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    for place in (root, other):
        place.mkdir()
        (place / "a.txt").write_text("precious\n")
    asked: list[str] = []
    calls = [call("write_file", path=path, content="x") for path in ("a.txt", f"{other}/a.txt")]
    agent = Agent(
        MODEL,
        tools=standard_tools(root, "off", also=[other]),
        stream_fn=scripted(*calls, text("ok")),
        approve=lambda request: asked.append(request.name) or True,
    )
    await agent.prompt("go")
    assert asked == []
    assert [(place / "a.txt").read_text() for place in (root, other)] == ["precious\n"] * 2


async def test_a_folder_of_git_can_be_added_and_is_written_by_git_alone(tmp_path: Path) -> None:
    root, git = tmp_path / "work", tmp_path / "repo" / ".git"
    root.mkdir()
    (git / "hooks").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\tbare = false\n")
    tools = {tool.name: tool for tool in standard_tools(root, "off", also=[git])}
    head = await tools["read_file"].execute({"path": f"{git}/HEAD"}, ToolContext())
    assert "ref:" in extract_text(head.content)
    for name, arguments in (
        ("write_file", {"path": f"{git}/hooks/pre-commit", "content": "evil"}),
        ("edit_file", {"path": f"{git}/config", "edits": [{"old": "bare", "new": "x"}]}),
    ):
        assert (await tools[name].execute(arguments, ToolContext())).is_error
    assert not (git / "hooks" / "pre-commit").exists()


@pytest.mark.parametrize("choice", ["auto", "off"])
async def test_a_read_only_folder_can_be_read_listed_and_searched(folder: Path, use: Any, choice: str) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/file.txt").write_text("a needle here\n")
    read_only(folder / "sub", folder)
    try:
        tools: dict[str, Any] = {tool.name: tool for tool in standard_tools(folder, choice)}  # type: ignore[arg-type]

        async def says(name: str, **arguments: Any) -> str:
            return extract_text((await use(tools[name], **arguments)).content)

        assert "needle" in await says("read_file", path="sub/file.txt")
        assert "file.txt" in await says("list_dir", path="sub")
        assert await says("search", pattern="needle") == "sub/file.txt:1: a needle here"
        assert await says("bash", command="grep -c needle sub/*") == "1\n"
        tools["bash"].close()
        tools["search"].close()
    finally:
        read_only(folder, folder / "sub", mode=0o755)


def read_only(*folders: Path, mode: int = 0o555) -> None:
    for folder in folders:
        folder.chmod(mode)


@pytest.fixture
def private(folder: Path) -> Path:
    (folder / "private").mkdir()
    (folder / "private/key").write_text("the key itself")
    return folder / "private"


def bash_of(tools: list[AgentTool]) -> AgentTool:
    return next(tool for tool in tools if tool.name == "bash")


async def test_commands_do_not_see_what_a_workspace_hides(folder: Path, private: Path, use: Any) -> None:
    sandboxes: list[Any] = ["auto", SandboxProfile(write=(str(folder),))]
    for sandbox in sandboxes:
        bash: Any = bash_of(standard_tools(Workspace(folder, hidden=["private"]), sandbox))
        result = await use(bash, command="cat private/key; echo done")
        said = extract_text(result.content)
        assert "done" in said
        assert "the key itself" not in said
        bash.close()


async def test_commands_do_not_write_what_a_workspace_protects(folder: Path, use: Any) -> None:
    bash: Any = bash_of(standard_tools(Workspace(folder, protected=["kept"])))
    await use(bash, command="echo x > kept; echo x > free")
    assert (folder / "free").exists()
    assert not (folder / "kept").exists() or not (folder / "kept").read_text()
    bash.close()


def test_paths_hidden_by_a_workspace_add_to_those_of_sandboxes(folder: Path, private: Path) -> None:
    bash: Any = bash_of(standard_tools(Workspace(folder, hidden=["private"], protected=["kept"])))
    profile = bash._source.profile
    usual = SandboxProfile()
    assert set(profile.hidden) == {*usual.hidden, str(private.resolve())}
    assert set(profile.protected) == {*usual.protected, "kept"}


def test_a_given_sandbox_must_be_of_the_workspace(folder: Path, private: Path) -> None:
    hiding = SandboxProfile(write=(str(folder),), hidden=("private",))
    protecting = SandboxProfile(write=(str(folder),), protected=(*SandboxProfile().protected, "kept"))
    with pytest.raises(ValueError, match=r"the sandbox hides .*private, and Workspace.* does not"):
        standard_tools(Workspace(folder), hiding)
    with pytest.raises(ValueError, match=r"the sandbox protects kept, and Workspace.* does not"):
        standard_tools(Workspace(folder), protecting)
    standard_tools(Workspace(folder, hidden=["private"]), hiding)
    with open_sandbox(SandboxProfile(write=(str(folder),))) as opened:
        with pytest.raises(ValueError, match=r"the open sandbox does not hide .*private"):
            standard_tools(Workspace(folder, hidden=["private"]), opened)
        with pytest.raises(ValueError, match="the open sandbox does not protect kept"):
            standard_tools(Workspace(folder, protected=[*SandboxProfile().protected, "kept"]), opened)
