"""Cases from CSV, JSONL and templates; numbers and similarity of replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from swink_agent.evals import (
    EvalCase,
    EvalSetError,
    Invocation,
    ResponseEvaluator,
    Verdict,
    case_schema,
    load_set,
)

TEMPLATE = """\
id: sums
name: Sums
verdict: any
cases:
  - {id: plain, name: Plain, user_messages: [hi]}
templates:
  - case:
      id: add-{{a}}-{{b}}
      name: Adds {{ a }} and {{b}}
      user_messages: ["What is {{a}} + {{b}}?"]
      setup: {"{{a}}.txt": "{{b}}"}
      expected_response: {number: "{{sum}}"}
      tags: [sums]
    variables:
      - {a: 1, b: "{{a}}", sum: 3}
      - {a: 2.5, b: x, sum: 4}
"""


def written(tmp_path: Path, text: str | bytes, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- tables ------------------------------------------------------------------------------------------------------


def test_a_row_of_csv_is_a_case(tmp_path: Path) -> None:
    text = (
        "\ufeffid,name,user_messages,expected_response.number,expected_response.tolerance,tags,budget.turns,setup\r\n"
        'a,,"Two\nlines, really?",3.5,0.1,"quick, sums",3,"{""x.txt"": ""1""}"\r\n'
        "\r\n"
        'b,B,"[""one"", ""two""]",,,,,\r\n'
    )
    eval_set = load_set(written(tmp_path, text, "sums.csv"))
    assert (eval_set.id, eval_set.name) == ("sums", "sums")
    assert eval_set.cases == (
        EvalCase(
            "a",
            "a",
            ["Two\nlines, really?"],
            expected_response={"number": 3.5, "tolerance": 0.1},
            tags=["quick", "sums"],
            budget={"turns": 3},
            setup={"x.txt": "1"},
        ),
        EvalCase("b", "B", ["one", "two"]),
    )


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ('{"a": 1}', ['{"a": 1}']),
        ("[1, 2]", ["[1, 2]"]),
        ("[]", ["[]"]),
        ('["one", 2]', ['["one", 2]']),
        ("[NaN]", ["[NaN]"]),
        ("[not JSON", ["[not JSON"]),
        ("[" * 9000, ["[" * 9000]),
        ("null", ["null"]),
        ('["one", "two"]', ["one", "two"]),
        (' ["one"] ', ["one"]),
    ],
)
def test_a_prompt_in_csv_is_the_text_unless_it_is_a_list_of_texts(
    tmp_path: Path, prompt: str, messages: list[str]
) -> None:
    cell = prompt.replace('"', '""')
    path = written(tmp_path, f'id,user_messages\na,"{cell}"\n', "s.csv")
    assert load_set(path).cases[0].user_messages == tuple(messages)


@pytest.mark.parametrize("text", ["[draft] say hi", "{draft}", '{"a": 1}', "[1]"])
def test_a_field_of_csv_that_takes_a_text_takes_one_in_brackets(tmp_path: Path, text: str) -> None:
    cell = text.replace('"', '""')
    row = ",".join(["a", "hi", *[f'"{cell}"'] * 4])
    path = written(tmp_path, f"id,user_messages,name,description,system_prompt,tags\n{row}\n", "s.csv")
    case = load_set(path).cases[0]
    assert [case.name, case.description, case.system_prompt, *case.tags] == [text] * 4


def test_a_line_of_jsonl_is_a_case(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "name": "A", "user_messages": ["hi"], "tags": ["x"]},
        {"id": "b", "name": "B", "user_messages": ["?"]},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    assert [case.id for case in load_set(written(tmp_path, text, "set.jsonl")).cases] == ["a", "b"]


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("s.csv", "id,user_messages\na,hi\nb\n", 3, "1 cells"),
        ("s.csv", 'id,user_messages\na,"hi\nthere"\nb\n', 4, "1 cells"),
        ("s.csv", "id,id\n", 1, "two columns"),
        ("s.csv", "id,\na,b\n", 1, "no name"),
        ("s.csv", "id,user_messages,expected_response.regex\na,hi,(\n", 2, "regex"),
        ("s.csv", "id,user_messages,budget.turns\na,hi,many\n", 2, "budget.turns: 'many' is not a whole number"),
        ("s.csv", "id,user_messages,budget.cost\na,hi,cheap\n", 2, "budget.cost: 'cheap' is not a number"),
        ("s.csv", "id,user_messages,verdict\na,hi,most\n", 2, "verdict: 'most' is not one of all, any, majority, mean"),
        ("s.csv", "id,user_mesages\na,hi\n", 1, "did you mean user_messages"),
        ("s.csv", "id;user_messages\na;hi\n", 1, "columns must be separated by commas, not by ';'"),
        ("s.csv", "id\tuser_messages\na\thi\n", 1, "columns must be separated by commas, not by a tab"),
        ("s.csv", "id,user_messages,setup\na,hi,{x\n", 2, "not JSON"),
        ("s.csv", "id,user_messages,setup\na,hi," + "[" * 9000 + "\n", 2, "nested more than"),
        ("s.csv", 'id,user_messages,metadata\na,hi,"{""n"": NaN}"\n', 2, "NaN is not a number in JSON"),
        ("s.csv", "id,user_messages\na,hi\n\na,hi\n", 4, "occurs twice"),
        ("s.csv", 'id,user_messages\na,"hi\n', 2, "not CSV"),
        ("s.csv", "id,user_messages,budget,budget.turns\na,hi,3,3\n", 2, "exclude each other"),
        ("s.csv", "id,user_messages\n", 1, "no cases"),
        ("s.csv", b"id,user_messages\na,\xff\n", 2, "UTF-8"),
        ("s.jsonl", '{"id": "a", "name": "A", "user_messages": ["hi"]}\n{"id"\n', 2, "not JSON"),
        ("s.jsonl", "[1]\n", 1, "JSON object"),
        ("s.jsonl", '\n{"id": "a", "name": "A", "user_messages": []}\n', 2, "user_messages"),
        ("s.jsonl", '{"id": "a", "name": "A", "user_messages": ["x"], "budget": {"turns": "3"}}\n', 1, "budget.turns"),
    ],
)
def test_mistakes_in_a_table_are_reported_with_their_line(
    tmp_path: Path, name: str, text: str | bytes, line: int, said: str
) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(EvalSetError) as caught:
        load_set(path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert said in caught.value.message


def test_a_line_of_jsonl_needs_no_name_as_a_row_of_csv_does_not(tmp_path: Path) -> None:
    path = written(tmp_path, '{"id": "a", "user_messages": ["hi"]}\n', "s.jsonl")
    assert (
        load_set(path).cases[0].name == load_set(written(tmp_path, "id,user_messages\na,hi\n", "s.csv")).cases[0].name
    )


@pytest.mark.parametrize("name", ["agents.py", "cases.txt", "cases.toml", "cases"])
def test_a_file_that_is_not_a_set_by_its_name_and_cannot_be_read_says_which_are(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, "def make_agent(case: str):\n    pass\n", name)
    with pytest.raises(EvalSetError, match=r"a set is a file \.yaml, \.yml, \.json, \.jsonl or \.csv"):
        load_set(path)


# -- templates ---------------------------------------------------------------------------------------------------


def test_a_template_makes_a_case_of_each_row(tmp_path: Path) -> None:
    eval_set = load_set(written(tmp_path, TEMPLATE, "s.yaml"))
    assert [case.id for case in eval_set.cases] == ["plain", "add-1-{{a}}", "add-2.5-x"]
    first = eval_set.cases[1]
    assert first.name == "Adds 1 and {{a}}", "a value is not looked at for further places"
    assert dict(first.setup) == {"1.txt": "{{a}}"}
    assert first.expected_response is not None
    assert first.expected_response.number == 3
    assert eval_set.verdict is Verdict.ANY


def test_the_variables_may_lie_in_a_table_beside_the_set(tmp_path: Path) -> None:
    written(tmp_path, "a,b,sum\n1,2,3\n01,,1\n", "rows.csv")
    text = TEMPLATE[: TEMPLATE.index("    variables:")] + "    variables: rows.csv\n"
    eval_set = load_set(written(tmp_path, text, "s.yaml"))
    assert [case.user_messages[0] for case in eval_set.cases[1:]] == ["What is 1 + 2?", "What is 01 + ?"]
    criteria = eval_set.cases[1].expected_response
    assert criteria is not None
    assert criteria.number == 3.0


def test_a_table_of_variables_has_at_least_one_row(tmp_path: Path) -> None:
    written(tmp_path, "a,b,sum\n", "rows.csv")
    text = TEMPLATE[: TEMPLATE.index("    variables:")] + "    variables: rows.csv\n"
    with pytest.raises(EvalSetError, match="the table of variables is empty: give at least one row"):
        load_set(written(tmp_path, text, "s.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("{{sum}}", "{{summ}}", 7, "{{summ}}, but the variables are a, b, sum"),
        ("{{sum}}", "{{a.__class__}}", 7, "{{a.__class__}}"),
        ("b: x, sum: 4}", "b: x, sum: 4, c: 1}", 16, "the template does not use the variable 'c'"),
        ("{a: 2.5, b: x, sum: 4}", '{a: 1, b: "{{a}}", sum: 4}', 16, "occurs twice"),
        ("sum: 4}", "sum: many}", 16, "expected_response.number"),
        ("      tags: [sums]", "      tag: [sums]", 15, "did you mean tags"),
        ("verdict: any", "verdit: any", 3, "verdit"),
        ("    variables:\n", "    variables: []\n    rows:\n", 15, "rows"),
    ],
)
def test_mistakes_in_a_template_are_reported_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    assert old in TEMPLATE
    with pytest.raises(EvalSetError) as caught:
        load_set(written(tmp_path, TEMPLATE.replace(old, new, 1), "s.yaml"))
    assert said in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize("table", ["../rows.csv", "/etc/passwd", "rows.txt", "missing.csv"])
def test_a_table_lies_beside_the_set(tmp_path: Path, table: str) -> None:
    text = TEMPLATE[: TEMPLATE.index("    variables:")] + f"    variables: {table}\n"
    with pytest.raises(EvalSetError):
        load_set(written(tmp_path, text, "s.yaml"))


def test_the_schema_knows_templates() -> None:
    validator = jsonschema_rs.validator_for(case_schema())
    good: dict[str, Any] = {"id": "s", "name": "S", "templates": [{"case": {"id": "{{a}}"}, "variables": [{"a": 1}]}]}
    assert validator.is_valid(good)
    assert not validator.is_valid({"id": "s", "name": "S"})
    assert not validator.is_valid({**good, "templates": [{"case": {}}]})


# -- replies -----------------------------------------------------------------------------------------------------


def score(reply: str, **criteria: Any) -> float:
    case = EvalCase("a", "A", ["?"], expected_response=criteria)
    found = ResponseEvaluator().evaluate(case, Invocation(response=reply))
    assert found is not None
    assert found.passed == (found.value >= found.threshold)
    return found.value if "similar" in criteria else float(found.passed)


@pytest.mark.table
@pytest.mark.parametrize(
    ("reply", "number", "tolerance", "passed"),
    [
        ("2 + 3 is 5.", 5, None, 1),
        ("2 + 3 is 5.", 2, None, 0),
        ("pi is 3.14159", 3.14, 0.01, 1),
        ("pi is 3.2", 3.14, 0.01, 0),
        ("It is 0.3", 0.1, 0.2, 1),
        ("-1,234.5 degrees", -1234.5, None, 1),
        ("\u22127", -7, None, 1),
        ("6.02e23 of them", 6.02e23, None, 1),
        ("about .5", 0.5, None, 1),
        ("Room B12", 12, None, 0),
        ("none", 0, None, 0),
        ("", 0, 5, 0),
    ],
)
def test_the_last_number_of_a_reply_is_near_enough(
    reply: str, number: float, tolerance: float | None, passed: int
) -> None:
    assert score(reply, number=number, tolerance=tolerance) == passed


@pytest.mark.table
@pytest.mark.parametrize(
    ("reply", "measure", "value"),
    [
        ("The cat sat on the mat", "words", 1.0),
        ("the CAT: sat, on the mat!", "words", 1.0),
        ("mat the on sat cat the", "words", 1.0),
        ("mat the on sat cat the", "sequence", 2 * 3 / 12),
        ("the cat sat", "words", 2 * 3 / 9),
        ("the cat sat", "sequence", 2 * 3 / 9),
        ("dogs", "words", 0.0),
        ("", "sequence", 0.0),
    ],
)
def test_similarity_is_what_its_measure_says(reply: str, measure: str, value: float) -> None:
    assert score(reply, similar="The cat sat on the mat", measure=measure) == pytest.approx(value)


@pytest.mark.table
@pytest.mark.parametrize(
    ("wanted", "reply", "value"),
    [
        ("Caf\u00e9 open", "cafe\u0301 OPEN", 1.0),  # two spellings of one letter
        ("\u732b\u304c\u597d\u304d", "\u732b\u304c\u597d\u304d\u3067\u3059\u3002", 0.8),  # no spaces between words
    ],
)
def test_similarity_knows_words_of_other_writing_systems(wanted: str, reply: str, value: float) -> None:
    assert score(reply, similar=wanted) == pytest.approx(value)


def test_an_expected_number_is_shown_with_all_its_digits() -> None:
    case = EvalCase("a", "A", ["?"], expected_response={"number": 1234567, "tolerance": 0.5})
    found = ResponseEvaluator().evaluate(case, Invocation(response="1234568"))
    assert found is not None
    assert "last number is 1234567 ± 0.5" in found.reason


@pytest.mark.table
@pytest.mark.parametrize(
    "criteria",
    [
        {"number": 1, "contains": "1"},
        {"contains": "1", "tolerance": 1},
        {"number": float("nan")},
        {"number": 1, "tolerance": -1},
        {"similar": "..."},
        {"similar": "a", "threshold": 2},
        {"similar": "a", "measure": "cosine"},
        {"number": 1, "threshold": 0.5},
    ],
)
def test_criteria_that_cannot_be_are_refused(criteria: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        EvalCase("a", "A", ["?"], expected_response=criteria)
