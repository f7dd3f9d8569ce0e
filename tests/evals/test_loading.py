"""Sets from files: what is accepted, and the file and line of every error."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from swink_agent.evals import (
    CaseBudget,
    EvalCase,
    EvalSet,
    EvalSetError,
    ExpectedCall,
    ExpectedFile,
    ExpectedTrajectory,
    JudgeRubric,
    ResponseCriteria,
    TrajectoryMatch,
    case_schema,
    load_set,
)

WHOLE = """\
id: files
name: Works with files
description: What an agent does with files.
cases:
  - id: rename
    name: Renames a function
    system_prompt: You change files.
    user_messages: ["Rename f to g in a.py", "Now say done"]
    setup:
      a.py: |
        def f():
            return 1
      src/b.py: ""
    expected_trajectory:
      match: any_order
      calls:
        - name: edit_file
        - {name: read_file, arguments: {path: a.py, whole: true, lines: 1}}
    expected_response:
      regex: (?i)done
    expected_files:
      - {path: a.py, regex: 'def g\\(\\)'}
      - {path: src/b.py, content: ""}
    budget: {cost: 0.1, tokens: 10000, turns: 5, seconds: 60}
    judge: {rubric: It is short., votes: 1}
    evaluators: [trajectory, files]
    metadata: {owner: ada, weight: 2}
"""

CASE = """\
id: s
name: S
cases:
  - id: a
    name: A
    user_messages: [hi]
"""


def loaded(tmp_path: Path, text: str, name: str = "set.yaml") -> EvalSet:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_set(path)


def refused(tmp_path: Path, text: str, name: str = "set.yaml") -> EvalSetError:
    with pytest.raises(EvalSetError) as caught:
        loaded(tmp_path, text, name)
    assert caught.value.path == tmp_path / name
    assert str(caught.value).startswith(str(tmp_path / name))
    return caught.value


def test_a_set_says_everything_that_a_case_can(tmp_path: Path) -> None:
    eval_set = loaded(tmp_path, WHOLE)
    (case,) = eval_set.cases
    assert (eval_set.id, eval_set.name, case.id) == ("files", "Works with files", "rename")
    assert case.user_messages == ("Rename f to g in a.py", "Now say done")
    assert case.setup == {"a.py": "def f():\n    return 1\n", "src/b.py": ""}
    assert case.expected_trajectory is not None
    assert case.expected_trajectory.match is TrajectoryMatch.ANY_ORDER
    assert [call.arguments for call in case.expected_trajectory.calls] == [
        None,
        {"path": "a.py", "whole": True, "lines": 1},
    ]
    assert case.budget is not None
    assert (case.budget.cost, case.budget.turns) == (0.1, 5)
    assert case.judge is not None
    assert (case.judge.threshold, case.judge.votes) == (0.5, 1)
    assert case.evaluators == ("trajectory", "files")
    assert case.metadata == {"owner": "ada", "weight": 2}


def test_json_says_the_same_as_yaml_and_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    same = json.dumps(yaml.safe_load(WHOLE), indent="\t")
    expected = loaded(tmp_path, WHOLE)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert loaded(tmp_path, same, "set.json") == expected
    error = refused(tmp_path, WHOLE)
    assert "pip install 'swink-agent[evals]'" in str(error)
    assert error.line is None


def wrong(value: Any) -> Any:
    return value


@pytest.mark.table
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": None}, "^name is a NoneType; give a text$"),
        ({"system_prompt": 5}, "^system_prompt is an int; give a text$"),
        ({"setup": {"a.txt": 5}}, "^the content of a.txt is an int; give a text$"),
        ({"setup": "a.txt"}, "^setup is a str; give a dict$"),
        ({"metadata": [1]}, "^metadata is a list; give a dict$"),
        ({"metadata": {1: 2}}, "^metadata has an int as a key; give texts$"),
        ({"metadata": {"a": object()}}, "^metadata is not JSON: "),
        ({"expected_response": lambda: ResponseCriteria(exact=wrong(5))}, "^exact is an int; give a text$"),
        ({"expected_response": lambda: ResponseCriteria(number=wrong("5"))}, "^number is a str; give a number$"),
        ({"expected_files": lambda: [ExpectedFile("a", content=wrong(5))]}, "^content is an int; give a text$"),
        (
            {"expected_trajectory": lambda: ExpectedTrajectory([ExpectedCall("a", wrong([1]))])},
            "^arguments is a list; give",
        ),
        ({"budget": lambda: CaseBudget(turns=wrong(1.5))}, "^turns is a float; give a whole number$"),
        ({"budget": lambda: CaseBudget(cost=wrong("1"))}, "^cost is a str; give a number$"),
        ({"judge": lambda: JudgeRubric("good", votes=wrong("3"))}, "^votes is a str; give a whole number$"),
    ],
)
def test_python_cannot_express_more_than_a_file(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EvalCase(
            **{"id": "a", "name": "A", "user_messages": ["hi"]}
            | {name: given() if callable(given) else given for name, given in fields.items()}
        )


def test_cases_made_in_python_follow_the_same_rules() -> None:
    case = EvalCase("a", "A", ["hi"], expected_response={"contains": "x"}, expected_files=[{"path": "./b//c"}])
    assert case.expected_files[0].path == "b/c"
    for wrong in ({"user_messages": []}, {"user_messages": "hi"}, {"setup": {"../x": ""}}, {"budget": {"turns": 0}}):
        with pytest.raises(ValueError, match=r".+"):
            EvalCase(**{"id": "a", "name": "A", "user_messages": ["hi"], **wrong})
    with pytest.raises(ValueError, match="'a' occurs twice"):
        EvalSet("s", "S", [case, case])


@pytest.mark.table
@pytest.mark.parametrize(
    ("addition", "line", "words"),
    [
        ("    expected_respons: {exact: x}", 7, "did you mean expected_response?"),
        ("    budget:\n      turns: 0", 8, "Expected `int` >= 1"),
        ("    budget:\n      cost: cheap", 8, "'cheap' is not a number"),
        ("    budget:\n      dollars: 1", 8, "unknown field 'dollars'"),
        ("    expected_response:\n      regex: '('", 8, "unterminated subpattern"),
        ("    expected_response:\n      exact: a\n      contains: b", 9, "give one of exact, contains"),
        ("    expected_response: {}", 7, "is empty"),
        ("    expected_response:\n      schema: {type: strin}", 8, "JSON Schema is invalid"),
        ("    expected_files:\n      - path: a\n      - path: ../b", 9, "leads out of"),
        ("    expected_files:\n      - path: /etc/passwd", 8, "is not in the case's folder"),
        ("    expected_files:\n      - {path: a, content: b, regex: c}", 8, "give one of them"),
        ("    setup:\n      a: b\n      c/../../d: e", 9, "leads out of"),
        ("    setup:\n      a: b\n      c: 3", 9, "Expected `str`, got `int`"),
        ("    setup:\n      a: b\n      a/c: d", 9, "cannot be a file and the folder"),
        ("    setup:\n      a/b: c\n      ./a//b: d", 9, "a/b occurs twice, once as './a//b'"),
        ("    setup:\n      'C:\\d': e", 8, "is not in the case's folder"),
        (
            "    expected_trajectory:\n      calls: []\n      match: some",
            9,
            "'some' is not one of in_order, exact, any_order",
        ),
        ("    expected_trajectory:\n      calls:\n        - arguments: {}", 9, "'name' is missing"),
        ("    judge:\n      rubric: ' '", 8, "this one is empty"),
        ("    judge:\n      rubric: x\n      threshold: 2", 9, "<= 1"),
        ("    user_messages: [again]", 7, "occurs twice"),
        ("  - id: a\n    name: B\n    user_messages: [hi]", 7, "the id 'a' occurs twice"),
        ("  - id: b\n    name: B\n    user_messages: []", 9, "length >= 1"),
        ("  - id: b\n    name: B\n    user_messages: [hi, '']", 9, "a message is empty"),
        ("  - id: b\n    user_messages: [hi]", 7, "'name' is missing"),
        ("  - id: ' '\n    name: B\n    user_messages: [hi]", 7, "cannot be the id of a case"),
        ("    metadata: !!python/object/apply:os.system [exit]", 7, "has no meaning here"),
        ("    metadata: *nothing", 7, "has no anchor"),
        ("    metadata: {1: one}", 7, "the name of a field is a text"),
        ("   - x", 7, "not YAML"),
        ("---\nid: second", 7, "second document"),
        ("colour: red", 7, "unknown field 'colour'"),
    ],
)
def test_impossible_values_are_refused_with_their_line(tmp_path: Path, addition: str, line: int, words: str) -> None:
    error = refused(tmp_path, CASE + addition + "\n")
    assert words in str(error)
    assert error.line == line


def test_json_has_lines_too(tmp_path: Path) -> None:
    good = {"id": "s", "name": "S", "cases": [{"id": "a", "name": "A", "user_messages": ["hi", '"]},{']}]}
    assert loaded(tmp_path, json.dumps(good), "set.json").cases[0].user_messages[1] == '"]},{'
    text = json.dumps({**good, "cases": [*good["cases"], {"id": "b", "name": 3, "user_messages": ["x"]}]}, indent=2)
    error = refused(tmp_path, text, "set.json")
    assert text.splitlines()[(error.line or 0) - 1].strip() == '"name": 3,'
    error = refused(tmp_path, '{\n "id": "a",\n "id": "b"}', "set.json")
    assert (error.line, error.message) == (3, "the field 'id' occurs twice")
    assert refused(tmp_path, '{\n "id": "a",,}', "set.json").line == 2
    assert "NaN" in str(refused(tmp_path, '{"id": NaN}', "set.json"))


def test_yaml_means_what_it_looks_like(tmp_path: Path) -> None:
    """As YAML 1.2 has it: `no` is a text, and so are 12:30:00 and a date."""
    text = CASE + "    metadata: {a: no, b: 12:30:00, c: 2026-01-01, d: true, e: 0x10, f: 1e3, g: ~, h: '1', i: 010}\n"
    assert loaded(tmp_path, text).cases[0].metadata == {
        "a": "no",
        "b": "12:30:00",
        "c": "2026-01-01",
        "d": True,
        "e": 16,
        "f": 1000.0,
        "g": None,
        "h": "1",
        "i": 10,
    }


def test_cases_can_share_what_they_have_in_common(tmp_path: Path) -> None:
    text = """\
id: s
name: S
cases:
  - &first
    id: a
    name: A
    user_messages: [hi]
    budget: {turns: 2}
  - <<: *first
    id: b
"""
    first, second = loaded(tmp_path, text).cases
    assert (second.id, second.name, second.budget) == ("b", "A", first.budget)
    error = refused(tmp_path, text.replace("turns: 2", "turns: 0"))
    assert error.line == 8


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        "{a: " * 50_000,
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)),
        "a: &a [*a]",
        "? " * 10_000,
        "id: \x00",
        "\t",
        "",
    ],
    ids=["deep-flow", "deep-block", "deep-mapping", "aliases", "cycle", "keys", "nul", "tab", "empty"],
)
def test_a_hostile_file_is_refused_in_no_time(tmp_path: Path, text: str) -> None:
    start = time.monotonic()
    assert refused(tmp_path, text).line is not None
    assert time.monotonic() - start < 20


def test_a_hostile_json_file_is_refused_too(tmp_path: Path) -> None:
    assert "nested" in str(refused(tmp_path, "[" * 100_000, "set.json"))
    assert refused(tmp_path, '{"a":' * 100 + "1", "set.json").line == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvalSetError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_set(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"id: s\nname: caf\xe9\n")
    with pytest.raises(EvalSetError, match="not UTF-8") as caught:
        load_set(str(tmp_path / "latin.yaml"))
    assert (caught.value.line, caught.value.path) == (2, str(tmp_path / "latin.yaml"))
    error = refused(tmp_path, "id: s\nname: S\ncases: []\n")
    assert (error.line, error.message) == (3, "cases: Expected `array` of length >= 1")


def test_the_schema_takes_what_the_loader_takes(tmp_path: Path) -> None:
    import yaml

    validator = jsonschema_rs.validator_for(case_schema())
    assert validator.is_valid(yaml.safe_load(WHOLE))
    assert validator.is_valid(yaml.safe_load(CASE))
    for wrong in ("    colour: red", "    budget: {turns: 0}", "    expected_response: {exact: a, contains: b}"):
        assert not validator.is_valid(yaml.safe_load(f"{CASE}{wrong}\n")), wrong
        refused(tmp_path, f"{CASE}{wrong}\n")
    described: Any = case_schema()["$defs"]["EvalCase"]["properties"]
    assert "description" in described["user_messages"]


def test_a_number_that_json_lacks_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text('{"id": "s", "name": "NaN",\n"cases": [],\n"metadata": [1,\n -Infinity]}')
    with pytest.raises(EvalSetError, match="-Infinity is not a number in JSON") as caught:
        load_set(path)
    assert caught.value.line == 4


def test_a_pattern_that_is_nested_too_deep_says_so(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    case = {"id": "a", "name": "A", "user_messages": ["x"], "expected_response": {"regex": "(" * 5000 + ")" * 5000}}
    path.write_text(json.dumps({"id": "s", "name": "S", "cases": [case]}))
    with pytest.raises(EvalSetError, match="is invalid: it is nested too deep"):
        load_set(path)
