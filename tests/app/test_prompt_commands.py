"""The user's own commands: prompts in files, with placeholders for words."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.app.agent.prompt_commands import PromptCommand, filled, prompt_commands
from swink_agent.app.errors import UsageProblem
from swink_agent.app.trust.trust import TrustStore, find_project


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config" / "commands").mkdir(parents=True)
    return tmp_path / "config" / "commands"


@pytest.mark.parametrize(
    ("text", "words", "prompt"),
    [
        ("Review $ARGUMENTS.", "a.py b.py", "Review a.py b.py."),
        ("From $1 to $2, not $3.", '"a b" c', "From a b to c, not ."),
        ("Review $1", "it's", "Review it's"),
        ("Review it.", "carefully", "Review it.\n\ncarefully"),
        ("Review it.", "", "Review it."),
        ("Words are not filled in again: $ARGUMENTS", "$1", "Words are not filled in again: $1"),
    ],
)
def test_words_go_to_their_places(text: str, words: str, prompt: str) -> None:
    assert PromptCommand("x", "", text).prompt(words) == prompt


def test_files_are_commands_by_their_names(config: Path) -> None:
    (config / "review.md").write_text("---\ndescription: 'Reviews a change.'\n---\n# Review\nLook at $ARGUMENTS.\n")
    (config / "plain.md").write_text("# Say hello\nto everybody\n")
    for name, data in (
        ("Upper.md", b"x"),
        ("two words.md", b"x"),
        ("empty.md", b"\n"),
        ("bytes.md", b"\xff"),
        ("n.txt", b"x"),
    ):
        (config / name).write_bytes(data)
    (config / "large.md").write_text("x" * 70_000)
    (config / "link.md").symlink_to(config / "plain.md")
    found = prompt_commands(None)
    assert {name: one.description for name, one in found.items()} == {
        "plain": "Say hello",
        "review": "Reviews a change.",
    }
    assert filled("review", "a.py", None) == "# Review\nLook at a.py."
    with pytest.raises(UsageProblem, match="did you mean review"):
        filled("revew", "", None)
    for name, why in (
        ("Upper", "a letter first"),
        ("empty", "no text"),
        ("bytes", "UTF-8"),
        ("large", "larger"),
        ("link", "link"),
    ):
        with pytest.raises(UsageProblem, match=why):
            filled(name, "", None)
    (config / "v2.md").write_text("Second.")
    assert filled("v2", "", None) == "Second."


def test_a_projects_commands_count_once_they_are_trusted_and_after_your_own(config: Path, tmp_path: Path) -> None:
    (config / "mine.md").write_text("Mine.")
    folder = tmp_path / "work"
    (folder / ".swink" / "commands").mkdir(parents=True)
    for name, text in (("mine", "The project's."), ("theirs", "Theirs.")):
        (folder / ".swink" / "commands" / f"{name}.md").write_text(text)

    def known() -> dict[str, str]:
        return {name: one.text for name, one in prompt_commands(find_project(folder, TrustStore())).items()}

    assert known() == {"mine": "Mine."}
    with pytest.raises(UsageProblem, match="not trusted"):
        filled("theirs", "", find_project(folder, TrustStore()))
    TrustStore().trust(folder)
    assert known() == {"mine": "Mine.", "theirs": "Theirs."}
    (folder / ".swink" / "commands" / "theirs.md").write_text("Changed.")
    assert known() == {"mine": "Mine."}
