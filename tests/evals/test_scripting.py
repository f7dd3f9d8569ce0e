"""Scripts, and the model that plays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent import Agent, ErrorKind, ModelSpec
from swink_agent.core.types import StopReason
from swink_agent.evals import EvalSetError, Script, ScriptedCall, ScriptedModel, ScriptedReply, load_script
from swink_agent.testing import check_stream_fn

SPEC = ModelSpec("scripted", "replies")


def model(*replies: str | ScriptedReply) -> ScriptedModel:
    made = Script({"*": replies}).replies_for("any")
    assert made is not None
    return ScriptedModel(made)


def test_a_script_says_the_same_in_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("replies:\n  a:\n    - Hi\n    - {text: Bye, cost: 0.5}\n")
    (tmp_path / "a.json").write_text('{"replies": {"a": ["Hi", {"text": "Bye", "cost": 0.5}]}}')
    expected = Script({"a": ("Hi", ScriptedReply("Bye", cost=0.5))})
    assert load_script(tmp_path / "a.yaml") == load_script(tmp_path / "a.json") == expected


def test_words_of_a_judge_may_be_a_text_or_an_object(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("replies: {}\njudge: {score: 0.8, reasoning: kind}\n")
    (tmp_path / "b.yaml").write_text('replies: {}\njudge: \'{"score":0.8,"reasoning":"kind"}\'\n')
    said = load_script(tmp_path / "a.yaml").judge
    assert said == load_script(tmp_path / "b.yaml").judge == '{"score":0.8,"reasoning":"kind"}'


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("replies: {}\njudge: 5\n", 2, "judge: Expected `"),
        ("replies: {}\njugde: x\n", 2, "unknown field `jugde`"),
        ("replies:\n  a:\n    - {txt: Hi}\n", 2, "the replies of 'a': Object contains unknown field `txt`"),
        ("replies:\n  a: [Hi]\n  b: Hi\n", 3, "the replies of 'b': Expected `array`, got `str`"),
        ("replies:\n  a: [{cost: -1}]\n", 2, "the replies of 'a': "),
        ("replies:\n  a: [{calls: [{arguments: {}}]}]\n", 2, "missing required field `name`"),
        ("answers: {}\n", 1, "is not a script: "),
        ("- Hi\n", 1, "is not a script: "),
        ("replies: {a: [Hi]\n", 2, "not YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(EvalSetError) as caught:
        load_script(path)
    assert (caught.value.line, caught.value.path) == (line, path)
    assert told in str(caught.value)


def test_a_case_has_its_own_replies_else_those_for_all() -> None:
    script = Script({"a": ("mine",), "*": ("ours",)})
    for case_id, text in (("a", "mine"), ("b", "ours")):
        replies = script.replies_for(case_id)
        assert replies is not None
        assert [reply.text for reply in replies] == [text]
    assert Script({"a": ()}).replies_for("b") is None


async def test_the_model_keeps_to_the_rules_of_models() -> None:
    calls = (ScriptedCall("add", {"a": 1}), ScriptedCall("add", {"a": 2}))
    await check_stream_fn(lambda: model(ScriptedReply("Hi", "hm", calls, input=3, output=4, cost=0.5)))
    await check_stream_fn(lambda: model(ScriptedReply(error="overloaded")))


async def test_a_reply_comes_with_its_words_calls_and_figures() -> None:
    calls = (ScriptedCall("look", {"at": "it"}), ScriptedCall("look", {"at": "that"}))
    agent = Agent(SPEC, stream_fn=model(ScriptedReply("Hi", "hm", calls, input=3, output=4, cost=0.5), "Bye"))
    result = await agent.prompt("Hello")
    assert result.text == "Bye"
    assert (result.usage.total, result.cost.total) == (7, 0.5)
    first = agent.messages[1]
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("look", {"at": "it"}),
        ("look", {"at": "that"}),
    ]
    assert len({call.id for call in first.tool_calls}) == 2


async def test_an_error_in_the_script_is_an_error_of_the_model() -> None:
    result = await Agent(SPEC, stream_fn=model(ScriptedReply(error="overloaded"))).prompt("Hello")
    assert (result.error, result.stop_reason) == ("overloaded", StopReason.ERROR)


async def test_a_script_that_is_over_says_so() -> None:
    agent = Agent(SPEC, stream_fn=model("Hi"))
    assert (await agent.prompt("Hello")).text == "Hi"
    result = await agent.prompt("And?")
    assert result.error == "the script has 1 reply, this is request 2"
    assert agent.messages[-1].error_kind == ErrorKind.INVALID_REQUEST


async def test_an_endless_model_says_its_last_words_again() -> None:
    replies = Script({"*": ("one", "two")}).replies_for("any")
    agent = Agent(SPEC, stream_fn=ScriptedModel(replies or (), is_endless=True))
    assert [(await agent.prompt("?")).text for _ in range(3)] == ["one", "two", "two"]
