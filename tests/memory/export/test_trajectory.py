"""Sessions as ATIF trajectories, and trajectories of other agents as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AssistantMessage,
    Cost,
    Image,
    ModelSpec,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.core.types import Base64Source
from swink_agent.memory import JsonlSessionStore
from swink_agent.memory.export import TrajectoryError, export_atif, read_atif
from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.testing import call, check_conversation, reply, scripted, think

STEP = {"step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls", "observation"}
STEP |= {"metrics", "llm_call_count", "extra"}
OF_AGENTS = ("model_name", "reasoning_content", "tool_calls", "metrics", "llm_call_count")


def check(document: dict[str, Any]) -> None:
    """The rules of the format, as its own validator has them."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert {"name", "version"} <= document["agent"].keys() <= {"name", "version", "model_name"}
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for step in document["steps"]:
        assert step.keys() <= STEP
        assert step["source"] in ("system", "user", "agent")
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not any(name in step for name in OF_AGENTS)
        ids = [one["tool_call_id"] for one in step.get("tool_calls", ())]
        for result in step.get("observation", {"results": []})["results"]:
            assert result["source_call_id"] in ids
            assert result.keys() <= {"source_call_id", "content", "extra"}
    assert document["final_metrics"]["total_steps"] == len(document["steps"])


@tool
def add(a: int, b: int) -> int:
    if a < 0:
        raise ValueError("too small")
    return a + b


async def test_a_session_is_a_trajectory_and_comes_back_as_it_was(tmp_path: Any) -> None:
    store = JsonlSessionStore(tmp_path)
    usage = Usage(10, 5, 100, 7, 122)
    stream = scripted(
        reply(think("Hm."), call("add", a=2, b=3), call("add", a=-1, b=0)),
        "5, and an error.",
        usage=usage,
        cost=Cost(total=0.5),
    )
    agent = Agent("openai:gpt-5", stream_fn=stream, tools=[add])
    with store.create(title="Sums") as session:
        session.attach(agent)
        await agent.prompt("2+3?")
    document = json.loads(store.export(session.id, "atif"))
    check(document)
    assert document["session_id"] == session.id
    assert document["agent"]["model_name"] == "openai/gpt-5"
    assert document["final_metrics"] == {
        "total_prompt_tokens": 234,
        "total_completion_tokens": 10,
        "total_cached_tokens": 200,
        "total_cost_usd": 1.0,
        "total_steps": 3,
    }
    asked, called, answered = document["steps"]
    assert (asked["source"], asked["message"]) == ("user", "2+3?")
    assert called["reasoning_content"] == "Hm."
    assert called["metrics"] == {
        "prompt_tokens": 117,
        "completion_tokens": 5,
        "cached_tokens": 100,
        "cost_usd": 0.5,
        "extra": {"cache_creation_tokens": 7},
    }
    good, bad = called["observation"]["results"]
    assert good["content"] == "5"
    assert (bad["extra"]["outcome"], bad["extra"]["is_error"]) == ("failed", True)
    assert answered["message"] == "5, and an error."
    back = read_atif(store.export(session.id, "atif"))
    assert back.messages == tuple(agent.messages)
    assert (back.title, back.model, back.left_out) == ("Sums", ModelSpec("openai", "gpt-5"), ())


def test_content_without_a_place_in_the_format_is_named() -> None:
    picture = Image(Base64Source("image/png", "AAAA"))
    messages = [
        UserMessage([Text("look"), picture]),
        AssistantMessage(content=(ToolCall("1", "f", {}, '{"a": '),), stop_reason=StopReason.LENGTH),
        ToolResultMessage("9", (Text("left over"),)),
    ]
    document = json.loads(export_atif(SessionInfo(id="s"), messages))
    check(document)
    assert document["steps"][0]["message"] == "look\n[image, image/png]"
    assert document["steps"][1]["tool_calls"][0]["extra"] == {"partial_json": '{"a": '}
    assert document["steps"][2] == {**document["steps"][2], "source": "system", "message": "left over"}
    check(json.loads(export_atif(SessionInfo(id="s", title="\ud800"), [])))


def other(*steps: dict[str, Any], **more: Any) -> str:
    agent = {"name": "other", "version": "2", "model_name": "some-model"}
    return json.dumps({"schema_version": "ATIF-v1.4", "session_id": "x", "agent": agent, "steps": list(steps), **more})


def test_a_trajectory_of_another_agent_is_a_conversation() -> None:
    calls = [{"tool_call_id": str(number), "function_name": "run", "arguments": {"n": number}} for number in (1, 2, 3)]
    parts = [{"type": "text", "text": "Go."}, {"type": "image", "source": {"path": "a.png"}}]
    seen = {"results": [{"content": "A prompt."}]}
    read = read_atif(
        other(
            {"step_id": 1, "source": "system", "message": "You are good."},
            {
                "step_id": 2,
                "source": "user",
                "message": parts,
            },
            {
                "step_id": 3,
                "source": "agent",
                "timestamp": "2026-01-31T10:00:00Z",
                "message": "",
                "reasoning_content": "Hm.",
                "tool_calls": calls,
                "observation": {"results": [{"source_call_id": "2", "content": "two"}, {"content": "one"}]},
                "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4, "logprobs": [0.1]},
                "anything": "new",
            },
            {"step_id": 4, "source": "agent", "message": "Done.", "observation": seen},
            subagent_trajectories=[{}],
        )
    )
    check_conversation(read.messages)
    kinds = [type(message).__name__ for message in read.messages]
    assert kinds == [
        *("UserMessage", "AssistantMessage", "ToolResultMessage", "ToolResultMessage", "ToolResultMessage"),
        *("AssistantMessage", "UserMessage"),
    ]
    first = read.messages[1]
    assert isinstance(first, AssistantMessage)
    assert first.content[0] == Thinking("Hm.")
    assert first.stop_reason is StopReason.TOOL_USE
    assert (first.usage, first.provider, first.model_id) == (Usage(6, 2, 4, 0, 12), "imported", "some-model")
    results = [message for message in read.messages if isinstance(message, ToolResultMessage)]
    assert [result.content[0] for result in results[:2]] == [Text("one"), Text("two")]
    assert (results[2].outcome, results[2].is_error) == (ToolOutcome.LOST, True)
    assert read.agent == "other 2"
    assert read.left_out == ("1 step of the system", "1 trajectory of another agent")


def _deep(levels: int) -> str:
    nested = "[" * levels + "]" * levels
    call = f'{{"tool_call_id": "1", "function_name": "f", "arguments": {{"a": {nested}}}}}'
    return f'{{"schema_version": "ATIF-v1.7", "agent": {{}}, "steps": [{{"source": "agent", "tool_calls": [{call}]}}]}}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an ATIF"),
        ("[]", "not an ATIF"),
        ('{"schema_version": "ATIF-v1.7"}', "not an ATIF"),
        ('{"schema_version": "ATIF-v2.0", "agent": {}, "steps": []}', "is not supported"),
        ('{"schema_version": "ATIF-v1.7", "agent": {}, "steps": [{"source": "cat"}]}', "must be system, user or agent"),
        ('{"schema_version": "ATIF-v1.7", "agent": {}, "steps": [{"source": "agent", "tool_calls": 1}]}', "steps"),
        (_deep(102), "the arguments of a call of f are nested more than 100 deep"),
        (_deep(900), "nested"),
        (_deep(100_000), "not an ATIF"),
    ],
    ids=["nothing", "list", "no steps", "version", "source", "calls", "deep", "deeper", "deepest"],
)
def test_anything_else_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(TrajectoryError, match=why):
        read_atif(text)


def imported(*steps: dict[str, Any]) -> tuple[Any, ...]:
    document = {"schema_version": "ATIF-v1.7", "agent": {"name": "other", "version": "1"}, "steps": steps}
    return read_atif(json.dumps(document)).messages


def test_sums_are_those_of_the_steps_if_the_session_knows_less() -> None:
    metrics = {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3, "cost_usd": 0.5}
    wrong = {"prompt_tokens": -10, "completion_tokens": -4, "cached_tokens": -3, "cost_usd": -0.5}
    steps = [{"source": "agent", "message": "m", "metrics": given} for given in (metrics, metrics, wrong)]
    sums = json.loads(export_atif(SessionInfo(id="s"), imported(*steps)))["final_metrics"]
    assert (sums["total_prompt_tokens"], sums["total_completion_tokens"], sums["total_cached_tokens"]) == (20, 8, 6)
    assert sums["total_cost_usd"] == 1.0
    known = SessionInfo(id="s", usage=Usage(input=100, total=100), cost=Cost(total=2.0))
    sums = json.loads(export_atif(known, imported(*steps)))["final_metrics"]
    assert (sums["total_prompt_tokens"], sums["total_completion_tokens"], sums["total_cost_usd"]) == (100, 8, 2.0)


def test_the_origin_of_a_message_returns_but_a_file_cannot_claim_a_summary() -> None:
    messages = [UserMessage("said", timestamp=1), UserMessage("$ ls", timestamp=2, origin="shell")]
    text = export_atif(SessionInfo(id="s"), [*messages, UserMessage("trust me", timestamp=3, origin="summary")])
    check(json.loads(text))
    assert read_atif(text).messages == (*messages, UserMessage("trust me", timestamp=3))
    for odd in (None, 5, "", ["shell"]):
        (message,) = imported({"source": "user", "message": "said", "extra": {"origin": odd}})
        assert message.origin is None


def test_half_of_a_character_is_replaced() -> None:
    (said,) = imported({"source": "user", "message": "cut \ud83d"})
    assert said.content == (Text("cut ?"),)


CALL = {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "rm -rf ."}}


@pytest.mark.parametrize("path", ["a", "a\ud83d"])
def test_keys_that_are_numbers_are_written_as_json_writes_them(path: str) -> None:
    call = ToolCall("c1", "set", {"rows": {1: "one", 2.5: "more"}, "path": path})
    document = json.loads(export_atif(SessionInfo(id="s"), [AssistantMessage([call], timestamp=1)]))
    (written,) = document["steps"][0]["tool_calls"]
    assert written["arguments"]["rows"] == {"1": "one", "2.5": "more"}


def test_no_call_of_an_imported_trajectory_waits_for_an_answer() -> None:
    results = [{"source_call_id": "c", "content": "", "extra": {"outcome": "pending"}}]
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": [CALL], "observation": {"results": results}}
    assert [message.outcome for message in imported(step)[1:]] == [ToolOutcome.NEVER_RAN]


@pytest.mark.sweep
def test_reading_takes_time_in_proportion_to_the_number_of_calls() -> None:
    ids = [str(number) for number in range(20_000)]
    calls = [{**CALL, "tool_call_id": id_} for id_ in ids]
    results = [{"source_call_id": id_, "content": id_} for id_ in reversed(ids)]
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": calls, "observation": {"results": results}}
    read = imported(step)
    assert [message.content[0].text for message in read[1:]] == ids


def test_fields_may_be_null_and_what_a_user_observed_is_kept() -> None:
    part = {"type": "text", "text": "a", "source": None}
    nothing = dict.fromkeys(("timestamp", "tool_calls", "metrics", "extra", "reasoning_content"))
    read = imported(
        {"step_id": 1, "source": "user", "message": [part], "observation": {"results": [{"content": "seen"}]}},
        {"step_id": 2, "source": "agent", "message": None, "observation": {"results": None}, **nothing},
        {"step_id": 3, "source": "agent", "message": "b", "tool_calls": [{**CALL, "arguments": None}]},
    )
    assert [type(message) for message in read] == [
        UserMessage,
        UserMessage,
        AssistantMessage,
        AssistantMessage,
        ToolResultMessage,
    ]
    assert read[1].content[0].text == "seen"


def test_a_reply_without_content_stays_one() -> None:
    failed = AssistantMessage([], stop_reason=StopReason.ERROR, error_message="no")
    assert read_atif(export_atif(SessionInfo(id="s"), [failed])).messages == (failed,)


def test_a_result_belongs_to_its_reply_whatever_stands_between_them() -> None:
    messages = [AssistantMessage([ToolCall("1", "t", {})]), UserMessage("wait"), ToolResultMessage("1", "r")]
    document = json.loads(export_atif(SessionInfo(id="s"), messages))
    check(document)
    assert document["steps"][0]["observation"]["results"][0]["content"] == "r"


def test_a_session_without_messages_is_a_trajectory_too() -> None:
    document = json.loads(export_atif(SessionInfo(id="s"), []))
    check(document)
    assert len(document["steps"]) == 1


def test_ids_and_names_that_no_provider_takes_are_changed() -> None:
    calls = [{**CALL, "function_name": name} for name in ("fs.read/file", "", "x" * 100)]
    results = [{"source_call_id": "c", "content": text} for text in ("1", "2", "3")]
    read = imported(
        {"step_id": 1, "source": "agent", "message": "", "tool_calls": calls, "observation": {"results": results}}
    )
    assert [(one.id, one.name) for one in read[0].tool_calls] == [
        ("c", "fs_read_file"),
        ("c-2", "tool"),
        ("c-3", "x" * 64),
    ]
    assert [(one.tool_call_id, one.content[0].text) for one in read[1:]] == [("c", "1"), ("c-2", "2"), ("c-3", "3")]
    check_conversation(read)
