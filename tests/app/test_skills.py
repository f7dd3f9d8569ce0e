"""The skills of the standard agent: where they come from, and which of a project's are trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.agent.skills import known_skills, with_skill
from swink_agent.app.agent.standard import AgentOptions, standard_agent
from swink_agent.app.errors import UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import load_settings
from swink_agent.app.trust.trust import TrustStore, find_project
from swink_agent.testing import scripted

TEXT = "---\nname: {name}\ndescription: {description}\n---\nDo it as {description} says.\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(home / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(home / "data"))
    return home


def make(place: Path, name: str, description: str) -> None:
    (place / name).mkdir(parents=True)
    (place / name / "SKILL.md").write_text(TEXT.format(name=name, description=description))


def shown(folder: Path) -> dict[str, str]:
    """The description of each skill that is used, and why the others are not."""
    found = known_skills(find_project(folder, TrustStore()))
    return {f"{skill.source} {skill.name} {skill.description}".strip(): skill.problem for skill in found}


def test_the_users_come_before_the_projects_and_of_one_name_the_first_counts(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    make(home / "config" / "skills", "one", "mine")
    make(home / ".agents" / "skills", "one", "shared")
    make(home / ".agents" / "skills", "two", "shared")
    make(folder / ".swink" / "skills", "two", "project")
    make(folder / ".swink" / "skills", "three", "project")
    make(folder / ".agents" / "skills", "three", "other")
    TrustStore().trust(folder)
    used = [name for name, problem in shown(folder).items() if not problem]
    assert used == ["user one mine", "user two shared", "project three project"]
    assert all("same name" in problem for name, problem in shown(folder).items() if name not in used)


def test_a_projects_skill_is_used_only_as_it_was_trusted(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    make(folder / ".swink" / "skills", "one", "first")
    project = find_project(folder, TrustStore())
    assert project is not None
    assert project.can_be_trusted
    assert "1 skills" in project.what_is_unused
    assert "not trusted" in shown(folder)["project one"]
    TrustStore().trust(folder)
    assert shown(folder) == {"project one first": ""}
    path = folder / ".swink" / "skills" / "one" / "SKILL.md"
    path.write_text(TEXT.format(name="one", description="second"))
    make(folder / ".swink" / "skills", "new", "unseen")
    assert "not trusted" in shown(folder)["project one"]
    assert "not trusted" in shown(folder)["project new"]
    store = TrustStore()
    [change] = store.changes(store.offer(folder))
    assert (b"first" in change.old, b"second" in change.new) == (True, True)
    store.trust(folder)
    assert shown(folder) == {"project new unseen": "", "project one second": ""}


def test_records_of_earlier_versions_still_count(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("notes")
    store = TrustStore()
    store.trust(folder)
    assert len(store.folders()[str(folder)].split()) == 2
    make(folder / ".swink" / "skills", "one", "later")
    project = find_project(folder, TrustStore())
    assert project is not None
    assert project.notes == b"notes"
    assert project.prompts == {}


def test_a_link_out_of_the_project_is_not_a_skill_of_it(home: Path, tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", "one", "outside")
    (tmp_path / "work" / ".swink").mkdir(parents=True)
    (tmp_path / "work" / ".swink" / "skills").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "work" / "AGENTS.md").write_text("notes")
    TrustStore().trust(tmp_path / "work")
    assert "leads out of the folder through a link" in shown(tmp_path / "work")["project one"]


def test_a_projects_skill_that_cannot_be_read_is_listed_with_the_reason(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "work" / ".agents" / "skills"
    make(tmp_path, "secret", "outside")
    for name in ("link", "pipe", "two words"):
        (place / name).mkdir(parents=True)
    (place / "link" / "SKILL.md").symlink_to(tmp_path / "secret" / "SKILL.md")
    os.mkfifo(place / "pipe" / "SKILL.md")
    (place / "two words" / "SKILL.md").write_text(TEXT.format(name="two words", description="x"))
    TrustStore().trust(tmp_path / "work")
    found = shown(tmp_path / "work")
    assert sorted(found) == ["project link", "project pipe", "project two words"]
    assert all(found.values())


def agent_in(folder: Path, **settings: Any) -> Any:
    options = AgentOptions(
        settings=load_settings(flags={"model": "anthropic:claude-sonnet-4-6", "sandbox": "off", **settings}),
        credentials=Credentials(environ={}),
        folder=folder,
        project=find_project(folder, TrustStore()),
        stream_fn=scripted("ok"),
    )
    return standard_agent(options)


def test_the_standard_agent_names_skills_and_has_the_tool(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    with agent_in(folder) as made:
        assert "skill" not in [tool.name for tool in made.agent.tools]
        assert "Skills:" not in str(made.agent.system_prompt)
    make(home / ".agents" / "skills", "one", "mine")
    with agent_in(folder) as made:
        assert "skill" in [tool.name for tool in made.agent.tools]
        assert "- one: mine" in str(made.agent.system_prompt)
    with agent_in(folder, skills=False) as made:
        assert "skill" not in [tool.name for tool in made.agent.tools]


def test_a_skill_goes_before_the_prompt(home: Path) -> None:
    make(home / ".agents" / "skills", "one", "mine")
    (home / ".agents" / "skills" / "bad").mkdir()
    (home / ".agents" / "skills" / "bad" / "SKILL.md").write_text("nothing")
    assert with_skill("one", "Now.", None) == "Do it as mine says.\n\nNow."
    assert with_skill("one", "", None) == "Do it as mine says."
    with pytest.raises(UsageProblem, match="did you mean one"):
        with_skill("ones", "", None)
    with pytest.raises(UsageProblem, match="cannot be used"):
        with_skill("bad", "", None)


def test_the_command_lists_them(home: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from swink_agent.cli.commands.skills import skills

    make(home / ".agents" / "skills", "one", "mine")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    done = CliRunner().invoke(skills, ["--json"], standalone_mode=False)
    [row] = json.loads(capsys.readouterr().out or done.stdout)
    assert row == {
        "name": "one",
        "description": "mine",
        "path": str(home / ".agents" / "skills" / "one" / "SKILL.md"),
        "source": "user",
        "problem": "",
    }
