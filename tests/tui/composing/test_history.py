"""The history of prompts: private, masked, shared, bounded, and searched as shells do."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from swink_agent.tui.composing import prompt_history as history_module
from swink_agent.tui.composing.prompt_history import HistorySearch, HistoryWalk, PromptHistory


def masked(text: str) -> str:
    return text.replace("sk-secret", "[masked]")


def test_prompts_come_back_in_another_program_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.jsonl"
    PromptHistory(path).add("first\nof two lines")
    PromptHistory(path).add("second")
    assert PromptHistory(path).entries() == ["first\nof two lines", "second"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"text": "first\nof two lines"},
        {"text": "second"},
    ]


def test_a_secret_is_masked_on_disk_and_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = PromptHistory(path, masked)
    history.add("use sk-secret here")
    assert history.entries() == ["use [masked] here"]
    assert "sk-secret" not in path.read_text()


@pytest.mark.parametrize("text", ["#key anthropic abc", "  /key x y", "look\n#key openai abc\nat this", "/KEY a b"])
def test_lines_that_set_a_key_are_never_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history"
    history = PromptHistory(path)
    history.add(text)
    assert history.entries() == []
    assert not path.exists()


def test_the_command_that_lists_keys_is_kept_and_so_is_a_prompt_about_keys(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "history")
    history.add("/keys")
    history.add("what is /key for")
    assert history.entries() == ["/keys", "what is /key for"]


def test_the_same_prompt_is_listed_once_at_its_last_place(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "history")
    for text in ["one", "one", "two", "one", "  "]:
        history.add(text)
    assert history.entries() == ["two", "one"]


def test_two_programs_see_what_the_other_has_sent(tmp_path: Path) -> None:
    mine, other = PromptHistory(tmp_path / "history"), PromptHistory(tmp_path / "history")
    mine.add("mine")
    other.add("theirs")
    assert mine.entries() == ["mine", "theirs"]


@pytest.mark.sweep
def test_programs_that_write_at_the_same_time_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "history"
    code = (
        "import sys; from pathlib import Path; from swink_agent.tui.composing.prompt_history import PromptHistory\n"
        "history = PromptHistory(Path(sys.argv[1]))\n"
        "for number in range(60): history.add(f'{sys.argv[2]} {number} ' + 'x' * 500)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b", "c")]
    assert [program.wait(60) for program in running] == [0, 0, 0]
    texts = PromptHistory(path).entries()
    assert len(texts) == 180
    assert [text.split()[1] for text in texts if text.startswith("b ")] == [str(number) for number in range(60)]


def test_a_file_that_grew_large_keeps_its_newer_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_LARGEST", 20_000)
    path = tmp_path / "history"
    history = PromptHistory(path)
    for number in range(100):
        history.add(f"{number} " + "x" * 500)
        assert path.stat().st_size <= 20_600
    texts = PromptHistory(path).entries()
    assert texts[-1].startswith("99 ")
    assert 10 < len(texts) < 45
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == [".history.lock", "history"]


def test_a_line_that_a_crash_cut_off_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'{"text":"whole"}\n{"text":"cut o')
    history = PromptHistory(path)
    history.add("next")
    assert PromptHistory(path).entries() == ["whole", "next"]


def test_a_file_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('{"text":"old"}\n')
    path.chmod(0o644)
    PromptHistory(path).add("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_link_is_followed_when_writing(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine\n")
    os.symlink(target, tmp_path / "history")
    history = PromptHistory(tmp_path / "history")
    history.add("a prompt")
    assert target.read_text() == "mine\n"
    assert "cannot be written" in history.problem


def test_a_history_that_cannot_be_written_still_serves_this_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PromptHistory(tmp_path / "file" / "history")
    history.add("kept in memory")
    assert history.entries() == ["kept in memory"]
    assert "cannot be" in history.problem


def test_a_walk_goes_back_and_ends_where_it_began() -> None:
    history = PromptHistory(None)
    for text in ["one", "two", "three"]:
        history.add(text)
    walk = HistoryWalk(history)
    assert [walk.older(), walk.older(), walk.older(), walk.older()] == ["three", "two", "one", None]
    assert [walk.newer(), walk.newer(), walk.newer()] == ["two", "three", None]
    assert walk.is_at_end


def test_a_search_finds_the_newest_first_and_older_ones_on_demand() -> None:
    history = PromptHistory(None)
    for text in ["fix the Test", "add a feature", "run the tests", "commit"]:
        history.add(text)
    search = HistorySearch(history)
    search.type("t")
    assert search.found == "commit"
    search.type("e")
    assert search.found == "run the tests"
    search.type("st")
    assert (search.found, search.at) == ("run the tests", 8)
    search.older()
    assert (search.found, search.at) == ("fix the Test", 8)
    search.older()
    assert search.has_failed
    assert search.found == "fix the Test"
    search.newer()
    assert search.found == "run the tests"
    assert not search.has_failed
    search.rub_out()
    search.rub_out()
    search.rub_out()
    assert search.found == "commit"
