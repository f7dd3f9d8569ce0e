"""`swink eval` as a process: running sets, results, comparing, the gate and its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from swink_agent import Agent
from swink_agent.evals import EvalCase, EvalRunner, EvalSet, EvalStore
from swink_agent.testing import FakeProvider, FakeReply, scripted

from ..ending import ends_cleanly, says

SET = """\
id: demo
name: A first set
cases:
  - id: port
    name: Reads the port
    user_messages: [Which port does settings.toml set?]
    setup:
      settings.toml: |
        port = 8443
    expected_trajectory:
      calls:
        - {name: read_file, arguments: {path: settings.toml}}
    expected_response: {contains: "8443"}
  - id: note
    name: Writes a note
    user_messages: [Write hello into note.txt., What did you write?]
    expected_files:
      - {path: note.txt, content: "hello\\n"}
    budget: {turns: 4}
"""
SCRIPT = """\
replies:
  port:
    - calls: [{name: read_file, arguments: {path: settings.toml}}]
    - text: The port is 8443.
      input: 100
      output: 20
      cost: 0.25
  note:
    - calls: [{name: write_file, arguments: {path: note.txt, content: "hello\\n"}}]
    - Done.
    - I wrote hello.
"""
WRONG = SCRIPT.replace("The port is 8443.", "I do not know.")
AGENTS = """\
from swink_agent import Agent, ModelSpec
from swink_agent.testing import scripted, stall

def make(case, folder):
    replies = [stall()] if case.id == "note" else ["8443"]
    return Agent(ModelSpec("test", "own"), stream_fn=scripted(*replies))

def steady(case, folder):
    return Agent(ModelSpec("test", "own"), stream_fn=scripted("8443", "8443"))

broken = 3

def is_short(case, invocation):
    return len(invocation.response) < 10

def budget(case, invocation):
    return None
"""
RUN = ("eval", "run", "set.yaml", "--store", "results")
KEPT = re.compile(r"kept: (\S+) in (\S+)")


@pytest.fixture
def project(swink: Any) -> Path:
    folder: Path = swink.folder
    (folder / "set.yaml").write_text(SET)
    (folder / "good.yaml").write_text(SCRIPT)
    (folder / "wrong.yaml").write_text(WRONG)
    (folder / "agents.py").write_text(AGENTS)
    return folder


async def kept(swink: Any, script: str, *options: str) -> str:
    """Runs the set with a script; the id of the result."""
    done = await swink(*RUN, "--script", script, *options)
    found = KEPT.search(done.stderr)
    assert found is not None, done
    return found[1]


# -- running -------------------------------------------------------------------------------------------------


async def test_a_set_runs_with_a_script_and_without_a_key(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--script", "good.yaml")
    assert done.code == 0, done
    lines = done.stdout.splitlines()
    assert lines[0] == "A first set"
    assert lines[-1].startswith("2 of 2 cases passed (100 %, $0.25, 120 tokens, ")
    progress = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert sorted([line.split(" ")[1:3] for line in progress]) == [["passed", "note"], ["passed", "port"]]
    assert [line.split("]")[0] for line in progress] == ["[1/2", "[2/2"]
    assert sorted(os.listdir(project)) == ["agents.py", "good.yaml", "results", "set.yaml", "wrong.yaml"]


async def test_a_case_that_fails_is_exit_code_1_and_says_why(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--script", "wrong.yaml")
    assert done.code == 1, done
    assert "1 of 2 cases passed" in done.stdout
    assert "response: 0.00 is below 1.00" in done.stdout
    assert re.search(r"FAILED port \(.*\n  │ response: ", done.stderr)


async def test_quiet_says_nothing_but_the_report(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--script", "good.yaml", "-q", "--format", "json")
    assert (done.code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["summary"]["passed"] == 2


@pytest.mark.sweep
async def test_repeats_are_made_and_told(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--script", "good.yaml", "--repeat", "3", "--format", "json")
    results = json.loads(done.stdout)["results"]
    assert [len(one["attempts"]) for one in results] == [3, 3]
    assert results[0]["pass_at"] == {"1": 1.0, "2": 1.0, "3": 1.0}
    assert len([line for line in done.stderr.splitlines() if line.startswith("[")]) == 2


async def test_a_live_model_is_asked_with_its_key(swink: Any, project: Path) -> None:
    replies = [FakeReply(calls=[("read_file", {"path": "settings.toml"})]), "It is 8443."]
    async with FakeProvider("anthropic", replies) as provider:
        swink.use(provider)
        (swink.home / "config").mkdir(exist_ok=True)
        (swink.home / "config" / "config.toml").write_text('aliases.usual = "anthropic:claude-sonnet-4-6"\n')
        done = await swink(*RUN, "--model", "usual", "--only", "port", "--max-tokens", "77")
    assert done.code == 0, done
    assert "model anthropic:claude-sonnet-4-6" in done.stdout
    assert not (project / "results").exists()


async def test_without_a_model_nothing_can_run(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--model", "anthropic")
    assert done.code == 3
    assert "ANTHROPIC_API_KEY" in done.stderr


@pytest.mark.parametrize("name", ["agents:make", "agents.py:make"])
async def test_a_factory_of_the_project_makes_the_agents(swink: Any, project: Path, name: str) -> None:
    done = await swink(*RUN, "--agent", name, "--only", "port")
    assert "model test:own" in done.stdout
    assert "trajectory: 0.00 is below 1.00" in done.stdout


@pytest.mark.sweep
async def test_a_script_stands_in_for_the_model_of_a_factory_too(swink: Any, project: Path) -> None:
    (project / "words.yaml").write_text("replies: {'*': [No idea., None.]}")
    done = await swink(*RUN, "--agent", "agents:steady", "--script", "words.yaml", "--format", "json")
    responses = [one["attempts"][0]["response"] for one in json.loads(done.stdout)["results"]]
    assert responses == ["No idea.", "None."]


async def test_an_evaluator_of_the_project_scores_too(swink: Any, project: Path) -> None:
    done = await swink(*RUN, "--script", "good.yaml", "--evaluator", "agents:is_short")
    assert done.code == 1
    assert "is_short: 0.00 is below 1.00" in done.stdout


WITH_RUBRIC = SET.replace("    budget:", "    judge: {rubric: Is it polite?}\n    budget:")
JUDGED = ("--agent", "agents:steady", "--judge-script", "judge.yaml")
REFUSED = [
    (("--agent", "agents"), {}, "module:function"),
    (("--agent", "agents:broken"), {}, "cannot be called"),
    (("--evaluator", "agents:broken", "--script", "good.yaml"), {}, "cannot be called"),
    (("--evaluator", "agents:budget", "--script", "good.yaml"), {}, "there is an evaluator 'budget' already"),
    (("--agent", "agents:missing"), {}, "cannot be loaded"),
    (("--agent", "nowhere.py:make"), {}, "is not a file"),
    (("--agent", "agents:make", "--tools", "none"), {}, "--tools is for the standard agent"),
    (("--agent", "agents:steady", "--agent", "agents:steady"), {}, "given twice"),
    (("--script", "good.yaml", "-m", "openai:a", "-m", "openai:a"), {}, "--model openai:a is given twice"),
    (("--script", "missing.yaml"), {}, "missing.yaml: cannot be read"),
    (("--script", "set.yaml"), {}, "set.yaml:1: is not a script"),
    (
        ("--script", "wrong.yaml"),
        {"wrong.yaml": SCRIPT.replace("- Done.", "- {say: Done.}")},
        "wrong.yaml:8: the replies of 'note': ",
    ),
    (("--replay", "missing"), {}, "is not a folder with recorded sessions"),
    (("--only", "nothing"), {}, "no case of 'demo'"),
    (("--only", "port", "--resume", "--script", "good.yaml"), {}, "nothing to resume"),
    (("--parallel", "0"), {}, "--parallel"),
    (("--script", "good.yaml"), {"set.yaml": SET.replace("    budget:", "    bugdet:")}, "set.yaml:19: "),
    (("--script", "good.yaml"), {"set.yaml": SET.replace("    budget:", "    bugdet:")}, "did you mean budget?"),
    (
        ("--script", "good.yaml", "--tag", "slow"),
        {"set.yaml": SET.replace("name: Reads the port", "name: Reads the port\n    tags: [quick]")},
        "has the tag 'slow'; there are quick",
    ),
    *[
        (model, {"set.yaml": WITH_RUBRIC}, "the case 'note' has a rubric, but there is no judge: --judge MODEL")
        for model in (("--script", "good.yaml"), ("--agent", "agents:steady"))
    ],
    (("--script", "good.yaml", "--judge-script", "nowhere.yaml"), {}, "nowhere.yaml: cannot be read"),
    ((*JUDGED, "--judge", "anthropic"), {"judge.yaml": "judge: {score: 0.25, reasoning: Curt.}"}, "--judge"),
    (JUDGED, {"judge.yaml": "replies: {}\n"}, "has no judge"),
    (JUDGED, {"judge.yaml": "judge: {winner: tie, reasoning: Both.}\n"}, "gives no score from 0 to 1"),
]


@pytest.mark.table
@pytest.mark.parametrize(("options", "files", "said"), REFUSED)
def test_a_wrong_run_is_refused_before_it_begins(
    refused: Callable[..., str], project: Path, options: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    for name, text in {"set.yaml": SET, "judge.yaml": "", "wrong.yaml": WRONG, **files}.items():
        (project / name).write_text(text)
    assert said in refused(*RUN, *options)
    assert not (project / "results").exists()


async def test_a_script_that_runs_out_or_has_nothing_fails_the_case(swink: Any, project: Path) -> None:
    (project / "short.yaml").write_text("replies: {port: []}")
    done = await swink(*RUN, "--script", "short.yaml")
    assert done.code == 1
    assert "the script has 0 replies, this is request 1" in done.stdout
    assert "the script has no replies for the case 'note'" in done.stdout


async def test_a_rubric_is_judged_by_the_script(swink: Any, project: Path) -> None:
    (project / "set.yaml").write_text(SET.replace("    budget:", "    judge: {rubric: Is it polite?}\n    budget:"))
    (project / "good.yaml").write_text(SCRIPT + 'judge: \'{"score": 0.25, "reasoning": "Curt."}\'\n')
    done = await swink(*RUN, "--script", "good.yaml")
    assert done.code == 1
    assert "judge: 0.25 is below 0.50: 0.25 (votes: 0.25, 0.25, 0.25): Curt." in done.stdout


@pytest.mark.sweep
async def test_a_named_judge_is_asked_for_its_votes(swink: Any, project: Path) -> None:
    (project / "set.yaml").write_text(SET.replace("    budget:", "    judge: {rubric: Is it polite?}\n    budget:"))
    votes = ['{"score": 1, "reasoning": "Kind."}'] * 3
    async with FakeProvider("anthropic", votes) as provider:
        swink.use(provider)
        done = await swink(*RUN, "--script", "good.yaml", "--judge", "anthropic:claude-sonnet-4-6", "--format", "json")
    assert done.code == 0, done
    assert json.loads(done.stdout)["results"][1]["scores"]["judge"]["reason"] == "1 (votes: 1, 1, 1): Kind."


async def test_a_case_that_expects_a_value_is_asked_for_one(swink: Any, project: Path) -> None:
    case = (
        "{id: age, name: Age, user_messages: [How old?], expected_response: {schema: {type: object, required: [age]}}}"
    )
    (project / "set.yaml").write_text(f"id: s\nname: s\ncases:\n  - {case}\n")
    (project / "good.yaml").write_text("replies: {age: [{calls: [{name: final_answer, arguments: {age: 3}}]}]}")
    done = await swink(*RUN, "--script", "good.yaml")
    assert done.code == 0, done


async def test_a_budget_ends_a_case_in_flight(swink: Any, project: Path) -> None:
    (project / "set.yaml").write_text(SET.replace("    setup:", "    budget: {turns: 1}\n    setup:", 1))
    done = await swink(*RUN, "--script", "good.yaml", "--format", "json")
    port = json.loads(done.stdout)["results"][0]
    assert done.code == 1
    assert port["attempts"][0]["turns"] == 1
    assert port["scores"]["trajectory"]["passed"] is True
    assert port["scores"]["response"]["passed"] is False


# -- interrupted ---------------------------------------------------------------------------------------------


async def interrupted(swink: Any, times: int = 1) -> tuple[bytes, bytes]:
    """Ctrl+C behind the first of two cases."""
    process = await swink.start(*RUN, "--agent", "agents:make", "--parallel", "1")
    return await ends_cleanly(process, signal.SIGINT, says(process, b"[1/2]"), times=times)


@pytest.mark.sweep
async def test_a_second_ctrl_c_ends_it_at_once(swink: Any, project: Path) -> None:
    await interrupted(swink, times=2)


@pytest.mark.sweep
async def test_ctrl_c_keeps_what_was_done_and_resume_goes_on(swink: Any, project: Path) -> None:
    stdout, stderr = await interrupted(swink)
    told = stderr.decode()
    assert "stopping; once more to stop at once" in told
    assert (
        "to continue later: swink eval run set.yaml --store results --agent agents:make --parallel 1 --resume" in told
    )
    assert "the run is not complete: the set has 2 cases" in stdout.decode()
    listed = await swink("eval", "list", "--store", "results")
    assert "interrupted" in listed.stdout
    done = await swink(*RUN, "--agent", "agents:steady", "--resume", "--format", "json")
    report = json.loads(done.stdout)
    assert [one["case_id"] for one in report["results"]] == ["port", "note"]
    assert report["run"]["is_complete"] is True
    assert "port" not in done.stderr.replace("report", ""), "it was made again"


async def test_on_a_terminal_one_line_tells_how_far_it_is(swink: Any, project: Path, terminal: Any) -> None:
    await terminal.start(*RUN, "--agent", "agents:make", "--parallel", "1")
    await terminal.expect("▸ 0 of 2 cases · 0 passed")
    await terminal.expect("1 of 2 cases · 0 passed · 1 failed")
    await terminal.expect(" left")
    terminal.type("\x03")
    assert await terminal.finish() == 130
    kept_lines = [line for line in terminal.lines if line]
    assert not [line for line in kept_lines if "▸" in line]
    assert any(line.startswith("[1/2] FAILED port") for line in kept_lines)


# -- results -------------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_a_result_is_reported_in_every_format_by_id_and_by_path(swink: Any, project: Path) -> None:
    first, second = await kept(swink, "good.yaml"), await kept(swink, "wrong.yaml")
    console = await swink("eval", "report", second, "--store", "results")
    assert "1 of 2 cases passed" in console.stdout
    path = str(next((project / "results").rglob(f"{second}.json")))
    markdown = await swink("eval", "report", path, "--format", "markdown")
    assert markdown.stdout.startswith("# A first set\n")
    assert (await swink("eval", "report", second, "--store", "results", "-o", "out/r.xml")).code == 0
    suite = ElementTree.parse(project / "out/r.xml").getroot()[0]
    assert suite.attrib["failures"] == "1"
    assert (await swink("eval", "report", path, "-o", "r.html")).code == 0
    (project / "file").write_text("")
    refused = await swink("eval", "report", path, "-o", "file/r.html")
    assert (refused.code, refused.stdout) == (3, ""), "1 would mean that a case failed"
    assert "file/r.html cannot be written: " in refused.stderr
    page = (project / "r.html").read_text()
    assert 'class="charts"' in page, "the other run of the set is drawn too"
    assert "I do not know." in page
    assert first < second


@pytest.mark.sweep
async def test_compare_says_what_changed(swink: Any, project: Path) -> None:
    first, second = await kept(swink, "good.yaml"), await kept(swink, "wrong.yaml")
    done = await swink("eval", "compare", first, second, "--store", "results")
    assert done.stdout.splitlines() == [
        "worse   port (passed before)",
        "0 better, 1 worse, 1 the same",
        "mean score -0.250 (-0.500 to +0.000) over 2 cases of both: no more than noise",
    ]
    done = await swink("eval", "compare", second, first, "--store", "results", "--json")
    assert json.loads(done.stdout)["fixed"] == ["port"]


@pytest.mark.sweep
async def test_verify_finds_what_was_changed(swink: Any, project: Path) -> None:
    run = await kept(swink, "good.yaml")
    assert (await swink("eval", "verify", run, "--store", "results")).code == 0
    path = next((project / "results").rglob(f"{run}.json"))
    path.write_text(path.read_text().replace("The port is 8443.", "The port is 9443."))
    done = await swink("eval", "verify", run, "--store", "results")
    assert done.code == 1
    assert done.stdout.startswith("damaged  case port")


# -- the gate ------------------------------------------------------------------------------------------------


async def test_a_changed_result_passes_no_gate_and_is_not_reported(swink: Any, project: Path) -> None:
    good, wrong = await kept(swink, "good.yaml"), await kept(swink, "wrong.yaml")
    path = next((project / "results").rglob(f"{wrong}.json"))
    text = path.read_text()
    changed = re.sub(r'"value":0\.0', '"value":1.0', text)
    assert changed != text
    path.write_text(changed)
    for command in (
        ("gate", wrong, "--min-pass-rate", "1"),
        ("gate", good, "--no-regression", wrong),
        ("report", wrong),
        ("compare", good, wrong),
        ("compare", wrong, good),
    ):
        done = await swink("eval", *command, "--store", "results")
        assert (done.code, done.stdout) == (3, ""), (command, done)
        assert f"{wrong}.json: is damaged: case port" in done.stderr
        assert "swink eval verify" in done.stderr


async def test_the_gate_has_an_exit_code_for_every_end(swink: Any, project: Path) -> None:
    good, wrong = await kept(swink, "good.yaml"), await kept(swink, "wrong.yaml")
    gate = ("eval", "gate", "--store", "results")
    passed = await swink(*gate, good, "--min-pass-rate", "1", "--max-cost", "1", "--max-duration", "10m")
    assert (passed.code, passed.stdout) == (0, "passed: 2 of 2 cases passed\n")
    failed = await swink(
        *(*gate, wrong, "--min-pass-rate", "0.9", "--max-cost", "0.1", "--max-duration", "0s"),
        *("--no-regression", good),
    )
    assert failed.code == 1
    assert [line.split("  ")[0] for line in failed.stdout.splitlines()] == ["failed"] * 4
    assert "pass rate 50 % (1 of 2) is below 90 %" in failed.stdout
    assert "case 'port' passed in the baseline and fails now" in failed.stdout
    for usage in ((wrong,), (wrong, "--min-pass-rate", "2"), (wrong, "--max-duration", "soon"), ("--max-cost", "1")):
        assert (await swink(*gate, *usage)).code == 2
    assert (await swink(*gate, "nothing", "--max-cost", "1")).code == 3
    assert (await swink(*gate, good, "--no-regression", "nothing.json")).code == 3
    (project / "broken.json").write_text("{}")
    assert (await swink(*gate, "broken.json", "--max-cost", "1")).code == 3


@pytest.mark.sweep
async def test_an_interrupted_result_does_not_pass_the_gate(swink: Any, project: Path) -> None:
    await interrupted(swink)
    part = str(next((project / "results").rglob("*.partial")))
    done = await swink("eval", "gate", part, "--min-pass-rate", "0")
    assert done.code == 1
    assert "the run is not complete: 1 of 2 cases are done" in done.stdout


# -- sets ----------------------------------------------------------------------------------------------------


async def test_the_schema_is_printed_for_editors(swink: Any) -> None:
    done = await swink("eval", "schema")
    assert json.loads(done.stdout)["$schema"].startswith("https://json-schema.org/")


async def recorded(swink: Any) -> str:
    """A session in which a file was read and another was changed; its id."""
    (swink.folder / "settings.toml").write_text("port = 8443\n")
    (swink.folder / "a.txt").write_text("old\n")
    replies = [
        FakeReply(calls=[("read_file", {"path": str(swink.folder / "settings.toml")})]),
        FakeReply(calls=[("read_file", {"path": "a.txt"})]),
        FakeReply(calls=[("write_file", {"path": "a.txt", "content": "8443\n"})]),
        "It is 8443.",
    ]
    async with FakeProvider("anthropic", replies) as provider:
        swink.use(provider)
        done = await swink("-p", "Write the port into a.txt", "--approve", "all", "--tools", "read_file,write_file")
    assert done.code == 0, done
    listed = await swink("sessions", "list", "--all", "--json")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        del swink.environ[name]
    return json.loads(listed.stdout)[0]["id"]


async def test_a_recorded_session_becomes_a_case_and_plays_its_model(swink: Any) -> None:
    session = await recorded(swink)
    shown = await swink("eval", "add", session)
    assert shown.stdout.startswith("  - id: write-the-port-into-a-txt\n    name: Write the port into a.txt\n")
    added = await swink("eval", "add", session, "--to", "set.yaml", "--recording", "recordings")
    assert (added.code, added.stdout) == (0, "added  write-the-port-into-a-txt to set.yaml\n")
    text = (swink.folder / "set.yaml").read_text()
    assert "settings.toml: |\n" in text
    assert str(swink.folder) not in text
    done = await swink(*RUN, "--replay", "recordings")
    assert done.code == 0, done
    assert "1 of 1 case passed" in done.stdout


@pytest.mark.sweep
async def test_a_case_is_added_behind_the_others_and_never_twice(swink: Any, project: Path) -> None:
    session = await recorded(swink)
    (project / "set.yaml").write_text(f"# ours\n{SET}")
    assert (await swink("eval", "add", session, "--to", "set.yaml", "--id", "new")).code == 0
    text = (project / "set.yaml").read_text()
    assert text.startswith(f"# ours\n{SET}")
    assert "  - id: new\n" in text
    again = await swink("eval", "add", session, "--to", "set.yaml", "--id", "new")
    assert again.code == 2
    assert "already has a case 'new'" in again.stderr
    (project / "odd.yaml").write_text(f"{SET}description: at the end\n")
    odd = await swink("eval", "add", session, "--to", "odd.yaml")
    assert odd.code == 2
    assert (project / "odd.yaml").read_text() == f"{SET}description: at the end\n"


async def test_a_hostile_set_draws_nothing_on_the_terminal(swink: Any, project: Path, terminal: Any) -> None:
    evil = '"\\e[2J\\e]52;c;aGk=\\a \\u202e evil"'
    (project / "set.yaml").write_text(SET.replace("Reads the port", "x").replace("name: x", f"name: {evil}"))
    (project / "wrong.yaml").write_text(WRONG.replace("I do not know.", evil))
    await terminal.start(*RUN, "--script", "wrong.yaml")
    assert await terminal.finish() == 1
    assert "\x1b[2J" not in terminal.shown
    assert "\x1b]" not in terminal.shown
    assert "\u202e" not in terminal.shown


async def test_a_key_in_what_a_projects_own_agents_do_is_not_kept(swink: Any, project: Path) -> None:
    (project / "telling.py").write_text(
        "from swink_agent import Agent\n"
        "from swink_agent.testing import scripted\n"
        "KEY = 'sk-ant-' + 'api03-' + 'abcdefghijklmnop' * 3\n"
        "def make(case, folder):\n"
        "    if case.id == 'port':\n"
        "        raise RuntimeError('401 for ' + KEY)\n"
        "    return Agent('test:m', stream_fn=scripted('it is ' + KEY))\n"
    )
    done = await swink(*RUN, "--agent", "telling:make")
    assert done.code == 1, done
    found = KEPT.search(done.stderr)
    assert found is not None
    for text in (done.stdout, done.stderr, (project / found[2]).read_text()):
        assert "abcdefghijklmnop" not in text
    assert "the agent could not be made: RuntimeError: 401 for [redacted" in done.stdout


# -- several at once, and again ------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_agents_and_models_run_side_by_side(swink: Any, project: Path) -> None:
    quick = SET[: SET.index("  - id: note")].replace(
        "    expected_trajectory:", "    tags: [quick]\n    expected_trajectory:"
    )
    (project / "set.yaml").write_text(
        quick[: quick.index("    expected_trajectory:")] + '    expected_response: {contains: "8443"}\n'
    )
    done = await swink(*RUN, "--agent", "one=agents:steady", "--agent", "two=agents.py:make", "--script", "good.yaml")
    assert "one" in done.stdout, done
    done = await swink(*RUN, "--agent", "one=agents:steady", "--agent", "two=agents.py:make")
    assert done.code == 0, done
    assert done.stdout.splitlines()[2].split() == ["one", "two"]
    assert "two against one: mean score +0.000" in done.stdout
    grid = re.search(r"grid: (\S+)", done.stderr)
    assert grid is not None
    told = await swink("eval", "report", grid[1], "--store", "results", "--format", "json")
    assert [one["variant"] for one in json.loads(told.stdout)["variants"]] == ["one", "two"]
    done = await swink(*RUN, "-m", "anthropic:a", "-m", "anthropic:b", "--script", "good.yaml", "--format", "junit")
    assert "[anthropic:a]" in done.stdout
    assert "[anthropic:b]" in done.stdout
    listed = await swink("eval", "list", "--store", "results")
    assert "VARIANT" in listed.stdout


async def test_a_result_is_scored_again(swink: Any, project: Path) -> None:
    run = await kept(swink, "wrong.yaml")
    done = await swink("eval", "score", run, "--store", "results", "--evaluator", "agents:is_short")
    assert done.code == 1, done
    assert "is_short" in done.stdout
    assert f"scored again from {run}" in done.stdout
    found = KEPT.search(done.stderr)
    assert found is not None
    assert (await swink("eval", "verify", found[1], "--store", "results")).code == 0
    (project / "kinder.yaml").write_text(SET.replace('contains: "8443"', "contains: know"))
    done = await swink("eval", "score", run, "--store", "results", "--set", "kinder.yaml")
    assert done.code == 0, done
    (project / "other.yaml").write_text(SET.replace("Write hello into", "Put hello into"))
    done = await swink("eval", "score", run, "--store", "results", "--set", "other.yaml")
    assert (done.code, done.stdout) == (2, "")
    assert "has other messages now" in done.stderr


async def test_tags_choose_cases_and_a_verdict_decides(swink: Any, project: Path) -> None:
    (project / "set.yaml").write_text(
        SET.replace("    name: Reads the port", "    name: Reads the port\n    tags: [quick]")
    )
    done = await swink(*RUN, "--script", "good.yaml", "--tag", "quick", "--verdict", "majority")
    assert done.code == 0, done
    assert "1 of 1 case passed" in done.stdout
    assert "quick: 1 of 1" in done.stdout
    assert "verdict majority" in done.stdout
    done = await swink(*RUN, "--script", "good.yaml", "--not-tag", "quick", "--format", "json")
    assert [one["case_id"] for one in json.loads(done.stdout)["results"]] == ["note"]


@pytest.mark.sweep
async def test_a_scripted_judge_judges_a_real_agent(swink: Any, project: Path) -> None:
    (project / "set.yaml").write_text(SET.replace("    budget:", "    judge: {rubric: Is it polite?}\n    budget:"))
    (project / "judge.yaml").write_text("judge: {score: 0.25, reasoning: Curt., winner: first}\n")
    done = await swink(*RUN, "--agent", "agents:steady", "--judge-script", "judge.yaml")
    assert done.code == 1, done
    assert "judge: 0.25 is below 0.50: 0.25 (votes: 0.25, 0.25, 0.25): Curt." in done.stdout
    found = KEPT.search(done.stderr)
    assert found is not None
    both = (found[1], found[1], "--store", "results", "--judge-script", "judge.yaml")
    compared = await swink("eval", "compare", *both)
    assert "0 for after, 0 for before, 2 ties; after wins 50%" in compared.stdout, compared
    (project / "scores.yaml").write_text("judge: {score: 0.25, reasoning: Curt.}\n")
    compared = await swink("eval", "compare", found[1], found[1], "--store", "results", "--judge-script", "scores.yaml")
    assert (compared.code, compared.stdout) == (2, "")
    assert "scores.yaml: a judge of two answers must name a winner" in compared.stderr
    down = ("--judge", "openai:any")
    swink.environ |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    compared = await swink("eval", "compare", found[1], found[1], "--store", "results", *down)
    assert (compared.code, compared.stdout) == (3, "")
    assert compared.stderr.startswith("error: the judge openai:any could not be asked"), compared


async def test_warnings_of_the_library_look_like_ours_and_quiet_hides_them(swink: Any, project: Path) -> None:
    agents = (project / "agents.py").read_text()
    (project / "agents.py").write_text(
        f"{agents}\nimport logging\n\ndef warning(case, folder):\n"
        "    try:\n        raise ValueError('in a traceback')\n    except ValueError:\n"
        "        logging.getLogger('swink_agent').warning('told once', exc_info=True)\n"
        "    return steady(case, folder)\n"
    )
    done = await swink(*RUN, "--agent", "agents:warning")
    assert "warning: told once\n" in done.stderr
    assert "Traceback" not in done.stderr
    done = await swink(*RUN, "--agent", "agents:warning", "-q")
    assert done.stderr == ""


async def test_the_beginning_of_an_id_names_a_grid_only_if_it_names_nothing_else(swink: Any, project: Path) -> None:
    def make(_case: EvalCase, _folder: Path) -> Agent:
        return Agent("test:own", stream_fn=scripted("8443"))

    cases = EvalSet("demo", "Demo", [EvalCase("port", "Port", ["?"], expected_response={"contains": "8443"})])
    store = EvalStore(project / "results")
    grid = await EvalRunner({"one": make, "two": make}, store=store).run_grid(cases)
    begin = grid.id[: len("20261118-073415-610")]
    assert "one" in (await swink("eval", "report", begin, "--store", "results")).stdout
    await EvalRunner(make, store=store).run(cases)
    done = await swink("eval", "report", begin[:8], "--store", "results")
    assert (done.code, done.stdout) == (3, "")
    assert "results" in done.stderr


@pytest.mark.sweep
async def test_the_gate_may_ask_for_the_lower_bound(swink: Any, project: Path) -> None:
    run = await kept(swink, "good.yaml")
    done = await swink("eval", "gate", run, "--store", "results", "--min-pass-rate-low", "0.9")
    assert (done.code, "with 95 % confidence" in done.stdout) == (1, True)
