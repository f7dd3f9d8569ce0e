"""The store: files of runs, finding them, and detecting damage."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from swink_agent import Agent, CustomMessage, ToolContext, tool
from swink_agent.core.tool import AgentToolResult
from swink_agent.evals import (
    Attempt,
    AuditTrail,
    CaseResult,
    EvalCase,
    EvalRun,
    EvalRunner,
    EvalSet,
    EvalStore,
    EvalStoreError,
    Invocation,
    Score,
    Summary,
)
from swink_agent.evals.errors import told
from swink_agent.evals.runs.codec import AttemptLine
from swink_agent.evals.runs.run_files import AttemptLog, RunHeader, read_attempts
from swink_agent.testing import call, scripted


class Notice(CustomMessage, tag="notice"):
    text: str


@tool
async def look(page: int, ctx: ToolContext) -> AgentToolResult:
    """Looks."""
    return AgentToolResult.text(f"page {page}", details={"where": Path("/x"), "odd": {1: (2, 3)}})


def make(_case: EvalCase, _folder: Path) -> Agent:
    stream = scripted(call("look", page=1), call("look", page=2), "the \ud800 end")
    return Agent("test:m", stream_fn=stream, tools=[look])


SET = EvalSet(
    "pages",
    "Pages",
    [
        EvalCase(f"c{number}", "C", ["look", "again"], expected_trajectory={"calls": [{"name": "look"}]})
        for number in range(3)
    ],
)


def stored(tmp_path: Path, **more: Any) -> tuple[EvalStore, EvalRun]:
    store = EvalStore(tmp_path)
    run = asyncio.run(EvalRunner(make, store=store, **more).run(SET))
    return store, run


def test_loaded_results_equal_saved_ones(tmp_path: Path) -> None:
    run = asyncio.run(EvalRunner(make).run(SET))
    store = EvalStore(tmp_path)
    path = store.save(run)
    again = store.load(path)
    assert (again.id, again.set_id, again.summary, again.chain) == (run.id, run.set_id, run.summary, run.chain)
    assert [result.case_id for result in again.results] == ["c0", "c1", "c2"]
    before, after = run.results[1].attempts[0], again.results[1].attempts[0]
    assert (after.scores, after.case, after.versions, after.chain) == (
        *(before.scores, before.case, before.versions, before.chain),
    )
    assert len(after.invocation.messages) == len(before.invocation.messages)
    assert after.invocation.tool_calls == before.invocation.tool_calls
    assert after.invocation.seconds == before.invocation.seconds
    assert after.invocation.folder == before.invocation.folder
    assert AuditTrail.verify(again) == []
    assert store.save(again) == path
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    assert path == tmp_path / "pages" / f"{run.id}.json"


def test_messages_of_an_application_survive_as_what_they_said(tmp_path: Path) -> None:
    def with_notice(case: EvalCase, folder: Path) -> Agent:
        agent = make(case, folder)
        agent.follow_up(Notice("careful"))
        return agent

    run = asyncio.run(EvalRunner(with_notice).run(SET))
    store = EvalStore(tmp_path)
    again = store.load(store.save(run))
    assert "careful" in repr(again.results[0].attempts[0].invocation.messages)
    assert AuditTrail.verify(again) == []
    assert AuditTrail.verify(run) == []


def test_runs_are_listed_newest_first_and_found_by_the_beginning_of_their_ids(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    assert store.list() == []
    for number, (name, set_id) in enumerate([("r1", "a"), ("r3", "b b"), ("r2", "a")]):
        store.save(EvalRun(name, set_id, summary=Summary(total=number), created=number))
    (tmp_path / "a" / "junk.json").write_text("{")
    assert [info.id for info in store.list()] == ["r2", "r3", "r1"]
    assert [info.id for info in store.list("a")] == ["r2", "r1"]
    assert [info.set_id for info in store.list("b b")] == ["b b"]
    assert store.load("r3").set_id == "b b"
    assert store.load(store.list()[0]).id == "r2"
    with pytest.raises(EvalStoreError, match=r"several results have ids that begin with 'r': r3, r2, r1"):
        store.load("r")
    with pytest.raises(EvalStoreError, match="there is no result 'q'"):
        store.load("q")
    with pytest.raises(EvalStoreError, match="name of a file"):
        store.save(EvalRun("../x", "a"))


def test_invalid_results_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, words in (
        ("", "is not a result"),
        ("[]", "is not a result"),
        ('{"id": "a", "set_id": "b", "schema_version": 2}', "newer version"),
    ):
        path.write_text(text)
        with pytest.raises(EvalStoreError, match=words) as caught:
            EvalStore(tmp_path).load(path)
        assert caught.value.path == str(path)


def test_a_run_that_cannot_be_written_leaves_nothing_half_done(tmp_path: Path) -> None:
    bad = EvalRun("r", "s", [CaseResult("c", (Attempt(1, {"x": Score(1.0)}),))])
    (tmp_path / "s").write_text("a file in the folder's place")
    with pytest.raises(EvalStoreError, match="cannot be written"):
        EvalStore(tmp_path).save(bad)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


# -- the audit chain -------------------------------------------------------------------------------------------------


def changed(path: Path, old: str, new: str, occurrence: int = 0) -> None:
    text = path.read_text()
    position = -1
    for _ in range(occurrence + 1):
        position = text.index(old, position + 1)
    path.write_text(text[:position] + new + text[position + len(old) :])


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"text":"page 1"', '"text":"page 9"', "case c1, turn 1: was changed"),
        ('"arguments":{"page":2}', '"arguments":{"page":3}', "case c1, turn 2: was changed"),
        ('"value":1.0', '"value":0.5', "case c1: the case, its scores or its figures were changed"),
        ('"model":"test:m"', '"model":"test:n"', "case c1: the case or its versions were changed"),
    ],
)
def test_a_change_is_found_in_its_case_and_turn(tmp_path: Path, old: str, new: str, where: str) -> None:
    store, run = stored(tmp_path)
    path = Path(run.path)
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "line").write_text(lines[2])
    changed(tmp_path / "line", old, new)
    path.write_text("".join([*lines[:2], (tmp_path / "line").read_text(), *lines[3:]]))
    (problem,) = AuditTrail.verify(store.load(run.id))
    assert problem.startswith(where)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document, indent=2))  # the same, reformatted by another program
    assert AuditTrail.verify(store.load(run.id)) == [problem]


def test_a_link_that_was_changed_is_one_problem(tmp_path: Path) -> None:
    store, run = stored(tmp_path, repeat=2)
    link = run.results[0].attempts[1].chain[2]
    changed(Path(run.path), link, "0" * 64)
    (problem,) = AuditTrail.verify(store.load(run.id))
    assert problem == "case c0, attempt 2, turn 2: was changed after it was recorded"


def test_removed_and_added_results_are_noticed(tmp_path: Path) -> None:
    store, run = stored(tmp_path)
    path = Path(run.path)
    text = path.read_text()
    document = json.loads(text)
    messages = document["attempts"][0]["trajectory"]["messages"]
    document["attempts"][0]["trajectory"]["messages"] = messages[:-2]
    path.write_text(json.dumps(document))
    problems = AuditTrail.verify(store.load(run.id))
    assert problems
    assert all(problem.startswith("case c0, turn ") for problem in problems)
    document = json.loads(text)
    document["attempts"][0]["trajectory"]["messages"] = [*messages, *messages[-2:]]
    path.write_text(json.dumps(document))
    assert any("was added" in problem for problem in AuditTrail.verify(store.load(run.id)))
    document = json.loads(text)
    del document["attempts"][1]
    path.write_text(json.dumps(document))
    assert AuditTrail.verify(store.load(run.id)) == ["the run has results for 2 of 3 cases"]
    document["cases"] = 2
    path.write_text(json.dumps(document))
    (problem,) = AuditTrail.verify(store.load(run.id))
    assert "removed" in problem


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    store, run = stored(tmp_path)
    changed(Path(run.path), '"case_id":"c1","name":"C"', '"case_id":"c1","name":C')
    with pytest.raises(EvalStoreError, match=r"line 3, case c1 is damaged"):
        store.load(run.id)


def test_a_trajectory_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    _, run = stored(tmp_path)
    Path(run.path).unlink()
    with pytest.raises(EvalStoreError, match="cannot be read"):
        _ = run.results[0].attempts[0].invocation
    assert len(AuditTrail.verify(run)) == 3


def test_runs_without_a_time_are_listed_by_when_they_were_saved(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    for second, name in enumerate(("z", "a", "m"), 1_000):
        path = store.save(EvalRun(name, "made"))
        os.utime(path, (second, second))
    assert [info.id for info in store.list("made")] == ["m", "a", "z"]


def test_a_result_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A run contains all that an agent read and said; only the owner may read its file, also during the run."""
    _store, run = stored(tmp_path)
    assert stat.S_IMODE(os.stat(run.path).st_mode) == 0o600


def test_damage_to_what_was_run_is_told_in_a_sentence(tmp_path: Path) -> None:
    store, run = stored(tmp_path)
    path = Path(run.path)
    path.write_text(path.read_text().replace('"case_id":"c1"', '"case_id":"c9"', 1))
    assert AuditTrail.verify(store.load(run.id)) == [
        "case c9: the case or its versions were changed after they were recorded"
    ]


def test_a_duration_that_was_changed_is_found_since_a_gate_may_rest_on_it(tmp_path: Path) -> None:
    store, run = stored(tmp_path)
    assert AuditTrail.verify(store.load(EvalStore(tmp_path / "other").save(run))) == []
    path = Path(run.path)
    header, rest = path.read_text().split("\n", 1)
    said = json.loads(header + "]}")
    said["summary"]["seconds"] = 0.001
    path.write_text(json.dumps(said)[:-2] + "\n" + rest)
    changed = store.load(run.id)
    assert changed.summary.seconds == 0.001
    assert AuditTrail.verify(changed) == [
        "the run's own hash does not fit: attempts were added, removed or replaced, "
        "or its duration, verdict or names were changed"
    ]


def test_results_refused_by_a_full_disk_are_written_when_there_is_room_again(tmp_path: Path) -> None:
    line = AttemptLine("a", "A", "", 1.0, Attempt(1, {"x": Score(1.0, reason="w" * 500)}))
    log = AttemptLog.create(tmp_path / "run.partial", RunHeader("run", "s"))
    log.append(line)
    log.sync()
    log.append(replace(line, case_id="b"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 100, limits[1]))  # a part of the line fits
    try:
        with pytest.raises(OSError, match="too large"):
            log.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    stored, _ = log.append(replace(line, case_id="c"))
    log.close()
    assert [found.case_id for found in read_attempts(log.path)] == ["a", "b", "c"]
    assert stored.load() == Invocation()


def test_an_error_of_the_disk_without_a_number_is_told_by_its_words(tmp_path: Path) -> None:
    with pytest.raises(EvalStoreError, match="cannot be read: the tape is torn"), told(tmp_path, "cannot be read"):
        raise OSError("the tape is torn")
