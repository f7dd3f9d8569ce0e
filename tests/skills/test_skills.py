"""Skills: what makes one usable, what the model sees of it, and what it can read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swink_agent import AgentToolResult, Text, ToolContext, ToolError
from swink_agent.skills import Skill, SkillTool, find_skills, read_skill, skills_prompt

FRONT = "---\nname: {name}\ndescription: {description}\n---\n{body}"


def make(place: Path, name: str, description: str = "Says hello.", body: str = "Say hello.\n", text: str = "") -> Path:
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text or FRONT.format(name=name, description=description, body=body))
    return folder


def said(result: AgentToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, Text))


def test_a_skill_is_its_front_matter_and_its_text(tmp_path: Path) -> None:
    make(tmp_path, "greeting", '"Says: hello."', "# Greeting\n\nSay hello.\n")
    (tmp_path / "no-skill").mkdir()
    [skill] = find_skills(tmp_path, "user")
    assert skill == Skill(
        "greeting",
        "Says: hello.",
        str(tmp_path / "greeting" / "SKILL.md"),
        "user",
        body="# Greeting\n\nSay hello.",
    )
    assert find_skills(tmp_path / "missing") == []


def test_a_description_and_a_text_may_be_as_long_as_their_limits(tmp_path: Path) -> None:
    make(tmp_path, "a", "x" * 1024, "y" * (256 * 1024))
    assert [skill.problem for skill in find_skills(tmp_path)] == [""]


def test_other_fields_of_the_standard_are_accepted_and_allow_nothing(tmp_path: Path) -> None:
    text = (
        "---\nname: pdf\ndescription: >\n  Reads\n  PDF.\nlicense: MIT\nallowed-tools: bash\n"
        "metadata:\n  author: ada\n  tags: [a, b]\n---\nRead it."
    )
    make(tmp_path, "pdf", text=text)
    [skill] = find_skills(tmp_path)
    assert (skill.description, skill.body, skill.problem) == ("Reads PDF.", "Read it.", "")


def test_a_description_of_several_lines_is_one_line_in_the_prompt(tmp_path: Path) -> None:
    text = "---\nname: pdf\ndescription: |\n  Reads PDF:\n\n  - forms\n  \t- tables \u2764\ufe0f\n---\nRead it."
    make(tmp_path, "pdf", text=text)
    [skill] = find_skills(tmp_path)
    assert (skill.description, skill.problem) == ("Reads PDF:\n\n- forms\n\t- tables \u2764\ufe0f", "")
    assert skills_prompt([skill]).splitlines()[1:] == ["- pdf: Reads PDF: - forms - tables \u2764\ufe0f"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a", "no front matter", "does not begin with front matter"),
        ("a", "---\nname: a\n---\n", "no description"),
        ("a", "---\ndescription: x\n---\n", "no name"),
        ("a", "---\nname: b\ndescription: x\n---\n", "they must be the same"),
        ("A", "---\nname: A\ndescription: x\n---\n", "1 to 64 of a-z"),
        ("a", "---\nname: a\ndescription: ''\n---\n", "1 to 1,024 characters"),
        ("a", f"---\nname: a\ndescription: {'x' * 1025}\n---\n", "1 to 1,024 characters"),
        ("a", "---\nname: a\ndescription: null\n---\n", "is not a text"),
        ("a", "---\nname: a\ndescription: 123\n---\n", "is not a text"),
        ("a", '---\nname: a\ndescription: "x\\u200by"\n---\n', "invisible characters"),
        ("a", '---\nname: a\ndescription: "x\\n\\e[2Jy"\n---\n', "invisible characters"),
        ("a", f"---\nname: a\ndescription: |\n{'  x' * 9}\n  {'x' * 1000}\n---\n", "1 to 1,024 characters"),
        ("a", "---\nname: &n a\ndescription: x\n---\n", "alias or an anchor"),
        ("a", "---\nname: !!str a\ndescription: x\n---\n", "a tag"),
        ("a", "---\nname: a\nname: a\ndescription: x\n---\n", "twice"),
        ("a", "---\n- a\n---\n", "not a mapping"),
        ("a", "---\nname: [\n---\n", "not YAML"),
        ("a", f"---\nname: a\ndescription: x\nmore: {'y' * 17_000}\n---\n", "front matter of SKILL.md is larger"),
        ("a", f"---\nname: a\ndescription: x\n---\n{'y' * 262_145}", "its text is larger"),
    ],
)
def test_skills_that_break_the_rules_are_not_used_and_say_why(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    skill = read_skill(make(tmp_path, name, text=text))
    assert problem in skill.problem
    assert skill.body == ""


def test_links_and_pipes_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text(FRONT.format(name="linked", description="x", body="y"))
    for name in ("linked", "piped", "folder"):
        (tmp_path / "skills" / name).mkdir(parents=True)
    os.symlink(tmp_path / "outside.md", tmp_path / "skills/linked/SKILL.md")
    os.mkfifo(tmp_path / "skills/piped/SKILL.md")
    (tmp_path / "skills/folder/SKILL.md").mkdir()
    problems = {skill.name: skill.problem for skill in find_skills(tmp_path / "skills")}
    assert "is a link" in problems["linked"]
    assert "is not a regular file" in problems["piped"]
    assert "is not a regular file" in problems["folder"]


async def test_the_tool_gives_the_text_the_files_and_a_file(tmp_path: Path) -> None:
    folder = make(tmp_path, "greeting")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "hello.sh").write_text("echo hello\n")
    (folder / "picture.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", folder / "link")
    tool = SkillTool(find_skills(tmp_path))
    ctx = ToolContext("1")
    assert not tool.requires_approval
    text = said(await tool.execute({"name": "greeting"}, ctx))
    assert text == "Say hello.\n\nFiles of this skill:\n- picture.bin\n- scripts/hello.sh"
    assert said(await tool.execute({"name": "greeting", "file": "scripts/hello.sh"}, ctx)) == "echo hello\n"
    for file, why in (
        ("../secret", "is not the path"),
        ("/etc/passwd", "is not the path"),
        ("link", "is a link"),
        ("missing", "does not exist"),
        ("picture.bin", "is not text"),
        ("scripts", "is not a regular file"),
    ):
        with pytest.raises(ToolError, match=why):
            await tool.execute({"name": "greeting", "file": file}, ctx)
    with pytest.raises(ToolError, match="did you mean greeting"):
        await tool.execute({"name": "greetings"}, ctx)


@pytest.mark.parametrize(("count", "shown"), [(200, 200), (201, 201), (300, 201)])
async def test_of_many_files_200_are_listed_and_the_rest_is_an_ellipsis(tmp_path: Path, count: int, shown: int) -> None:
    folder = make(tmp_path, "greeting")
    for number in range(count):
        (folder / f"Z{number:03}").touch()  # after SKILL.md
    text = said(await SkillTool(find_skills(tmp_path)).execute({"name": "greeting"}, ToolContext("1")))
    rows = text.splitlines()[3:]
    assert [len(rows), rows[-1]] == [shown, "- …" if count > 200 else "- Z199"]


def test_the_prompt_names_at_most_64_skills_and_16_kb(tmp_path: Path) -> None:
    assert skills_prompt([]) == ""
    many = [Skill(f"s{number:03}", "x" * 1000) for number in range(100)]
    assert len(skills_prompt(many).encode()) <= 16 * 1024
    short = [Skill(f"s{number:03}", "x") for number in range(100)]
    assert len(skills_prompt(short).splitlines()) == 65
    assert "broken" not in skills_prompt([Skill("broken", "x", problem="y"), *short])


def test_of_one_name_the_first_counts(tmp_path: Path) -> None:
    first, second = Skill("a", "first"), Skill("a", "second")
    assert "first" in skills_prompt([first, second])
    assert "second" not in skills_prompt([first, second])


def test_a_skill_whose_folder_is_a_link_is_not_used(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", "greeting")
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "greeting").symlink_to(tmp_path / "elsewhere" / "greeting")
    [skill] = find_skills(tmp_path / "skills")
    assert (skill.name, skill.problem) == ("greeting", "its folder is a link")


async def test_a_link_that_replaces_a_skills_folder_later_is_not_read(tmp_path: Path) -> None:
    make(tmp_path / "skills", "greeting")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    tool = SkillTool(find_skills(tmp_path / "skills"))
    (tmp_path / "skills" / "greeting").rename(tmp_path / "old")
    (tmp_path / "skills" / "greeting").symlink_to(tmp_path / "private")
    for arguments in ({"name": "greeting"}, {"name": "greeting", "file": "key"}):
        with pytest.raises(ToolError, match="not the folder that was found"):
            await tool.execute(arguments, ToolContext("1"))


async def test_names_of_files_that_do_not_show_as_they_are_are_not_listed(tmp_path: Path) -> None:
    folder = make(tmp_path, "greeting")
    for name in ("good.txt", "e\x1b[31mvil", "two\nlines", "zero\u200bwidth"):
        (folder / name).touch()
    text = said(await SkillTool(find_skills(tmp_path)).execute({"name": "greeting"}, ToolContext("1")))
    assert text == "Say hello.\n\nFiles of this skill:\n- good.txt"
