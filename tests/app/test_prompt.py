"""The standard prompt: short, factual, and the same bytes for the same folder and day."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

from swink_agent.app.agent.system_prompt import INSTRUCTIONS, folder_listing, project_notes, standard_prompt


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    return folder


def test_a_folder_is_listed_in_one_line(tmp_path: Path) -> None:
    fill(tmp_path, "b.txt", "a/", ".hidden", "two words.md", "new\nline\x1b[31m")
    assert folder_listing(tmp_path) == 'a/ b.txt new?line?[31m "two words.md"'
    assert folder_listing(tmp_path / "a") == "(nothing)"
    assert folder_listing(tmp_path / "not there") == "(nothing)"


def test_a_long_listing_is_cut_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, *[f"f{number:03}" for number in range(100)])
    listing = folder_listing(tmp_path)
    assert listing.split()[:40] == [f"f{number:03}" for number in range(40)]
    assert listing.endswith(" … and 60 more")
    assert folder_listing(fill(tmp_path / "long", "n" * 200)) == "n" * 79 + "…"


def test_files_that_git_ignores_are_left_out(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    fill(tmp_path, "kept.py", "build/x", "notes.log", "sub/inner.log", "sub/kept.txt")
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    assert folder_listing(tmp_path) == "kept.py sub/"
    assert folder_listing(tmp_path / "sub") == "kept.txt"


def test_a_hostile_repository_runs_nothing_while_it_is_listed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    witness = tmp_path / "witness"
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch '{witness}'\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.hooksPath", "core.pager", "core.sshCommand", "alias.check-ignore"):
        subprocess.run(["git", "-C", str(tmp_path), "config", key, str(program)], check=True)
    assert folder_listing(tmp_path) == "program.sh"
    assert not witness.exists()


def test_the_prompt_has_the_facts_and_stays_short(tmp_path: Path) -> None:
    fill(tmp_path, "README.md")
    prompt = standard_prompt(tmp_path, today=lambda: date(2026, 2, 3))
    assert prompt.startswith(INSTRUCTIONS)
    assert "Date: 2026-02-03." in prompt
    assert f"Folder: {tmp_path}." in prompt
    assert prompt.endswith("\nREADME.md")
    assert prompt == standard_prompt(tmp_path, today=lambda: date(2026, 2, 3))
    assert len(prompt) < 900


def test_own_instructions_take_the_place_of_the_standard_ones_and_the_facts_stay(tmp_path: Path) -> None:
    prompt = standard_prompt(tmp_path, instructions=" Speak like a pirate. ", notes="Use tabs.")
    assert prompt.startswith("Speak like a pirate.\n\nDate: ")
    assert INSTRUCTIONS not in prompt
    assert prompt.endswith("The project's notes for agents:\nUse tabs.")
    assert standard_prompt(tmp_path, instructions="").startswith("Date: ")


def test_notes_are_cut_to_a_sensible_length() -> None:
    notes = ("/project/AGENTS.md", ("é" * 1000).encode())
    assert project_notes([notes], 101) == "é" * 50 + "\n… (the rest is in AGENTS.md)"
    assert project_notes([notes]) == "é" * 1000
    assert project_notes([]) == ""


def test_the_innermost_notes_have_room_first_and_stand_last() -> None:
    notes = [("/project/AGENTS.md", b"outer " * 10), ("/project/src/AGENTS.md", b"inner")]
    assert project_notes(notes, 11) == (
        "/project/AGENTS.md:\nouter\n… (the rest is in /project/AGENTS.md)\n\n/project/src/AGENTS.md:\ninner"
    )
