"""A run over HTTP: prompts, events, questions, steering, stopping; many readers, reloads and other processes."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent
from swink_agent.app.agent.open_agent import OpenAgent
from swink_agent.app.talk.front import PickItem
from swink_agent.memory import SessionInUse
from swink_agent.testing import call, scripted, text
from swink_agent.web.problems import Problem
from swink_agent.web.questions import Questions

from .conftest import MODEL, Client, running, store_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
OLD = "".join([f"line {number}\n" for number in range(30)])


def named(events: list[tuple[str, str, Any]], name: str) -> list[Any]:
    return [data for _, found, data in events if found == name]


async def begin(client: Client, session: str, prompt: str) -> int:
    status, accepted = await client.ask("POST", f"sessions/{session}/prompt", {"text": prompt})
    assert status == 202, accepted
    return accepted["position"]


async def question_of(client: Client, session: str, position: int) -> dict[str, Any]:
    async with client.stream(session, position) as stream:
        return (await stream.until("question"))[-1][2]


async def test_a_prompt_streams_its_run_and_is_on_disk(folder: Path) -> None:
    async with running(folder, text("Hello there.")) as client:
        session = await client.new(title="Greeting")
        events = await client.say(session, "hi")
        names = [name for _, name, _ in events]
        assert [name for name in names if name not in ("state", "message_update")] == [
            "agent_start",
            "turn_start",
            "message_start",
            "message_end",
            "turn_end",
            "agent_end",
        ]
        assert [state["state"] for state in named(events, "state")][-1] == "idle"
        assert "running" in [state["state"] for state in named(events, "state")]
        assert "".join([update["delta"]["delta"] for update in named(events, "message_update")]) == "Hello there."
        numbers = [int(number) for number, _, _ in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        status, found = await client.ask("GET", f"sessions/{session}/messages")
        assert status == 200
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert (found["first"], found["total"]) == (0, 2)
        _, described = await client.ask("GET", f"sessions/{session}")
        assert described["title"] == "Greeting"
        assert described["state"] == "idle"
        assert described["fill"] > 0
        assert described["position"] == numbers[-1]


async def test_a_session_of_an_earlier_start_knows_its_model_and_how_full_it_is(folder: Path) -> None:
    async with running(folder, text("A long answer. " * 500)) as client:
        session = await client.new(thinking="low")
        await client.say(session, "hi")
    async with running(folder, text("x")) as client:
        _, described = await client.ask("GET", f"sessions/{session}")
        assert (described["chosen"], described["thinking"]) == ("anthropic:claude-sonnet-4-6", "low")
        assert described["fill"] > 0


async def test_the_prompt_is_on_disk_before_it_is_accepted(folder: Path) -> None:
    held = asyncio.Event()

    async def stream(*_: Any) -> Any:
        await held.wait()
        for event in text("Done.").events():
            yield event

    async with running(folder, stream) as client:
        session = await client.new()
        position = await begin(client, session, "remember this")
        assert [str(m.content[0].text) for m in store_of(folder).load(session).messages] == ["remember this"]
        held.set()
        async with client.stream(session, position) as reading:
            await reading.until("state", state="idle")


async def test_a_question_is_answered_by_one_of_many_readers(folder: Path) -> None:
    replies = (call("bash", command="echo hi"), text("Said hi."))
    async with running(folder, *replies) as client:
        session = await client.new()
        position = await begin(client, session, "say hi")
        asked = await question_of(client, session, position)
        assert (asked["name"], asked["call_id"]) == ("bash", "call_1")
        assert "echo hi" in asked["display"]
        assert {"once", "no"} <= set(asked["choices"])
        _, described = await client.ask("GET", f"sessions/{session}")
        assert described["state"] == "waiting"
        assert [one["id"] for one in described["questions"]] == [asked["id"]], "a reload finds it again"
        where = f"sessions/{session}/answers"
        assert (await client.ask("POST", where, {"question": asked["id"], "choice": "maybe"}))[0] == 422
        assert (await client.ask("POST", where, {"question": "other", "choice": "once"}))[0] == 404
        async with client.stream(session, position) as one, client.stream(session, position) as other:
            status, _ = await client.ask("POST", where, {"question": asked["id"], "choice": "once"})
            assert status == 200
            first, second = await asyncio.gather(one.until("state", state="idle"), other.until("state", state="idle"))
        assert first == second
        assert named(first, "answered") == [
            {"type": "answered", "question": asked["id"], "choice": "once", "by": "local"}
        ]
        assert named(first, "tool_execution_end")[0]["is_error"] is False
        status, problem = await client.ask("POST", where, {"question": asked["id"], "choice": "no"})
        assert (status, problem["code"]) == (409, "answered")


async def test_an_answer_that_comes_while_its_run_is_stopped_does_not_count() -> None:
    told: list[Any] = []
    questions = Questions(lambda name, data: told.append((name, data)), lambda: None)
    asking = asyncio.create_task(questions.choose("Which?", [PickItem("a", "A")], str))
    await asyncio.sleep(0)
    (question,) = questions.open
    asking.cancel()
    with pytest.raises(Problem, match="answered already, or its run was stopped") as raised:
        questions.answer(question.id, "a", "", None, "ada")
    assert raised.value.status == 409
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert [data for name, data in told if name == "answered"] == [{"question": question.id, "choice": "", "by": ""}]


async def test_a_no_tells_the_model_why(folder: Path) -> None:
    async with running(folder, call("bash", command="echo hi"), text("Understood.")) as client:
        session = await client.new()
        position = await begin(client, session, "say hi")
        asked = await question_of(client, session, position)
        answer = {"question": asked["id"], "choice": "no", "reason": "not today"}
        assert (await client.ask("POST", f"sessions/{session}/answers", answer))[0] == 200
        async with client.stream(session, position) as stream:
            events = await stream.until("state", state="idle")
        assert "not today" in named(events, "tool_execution_end")[0]["reason"]


async def test_some_hunks_of_a_change_are_accepted(folder: Path) -> None:
    path = "/".join([*["d" * 150] * 4, "a.txt"])
    (folder / path).parent.mkdir(parents=True)
    (folder / path).write_text(OLD)
    edits = [{"old": "line 2\n", "new": "two\n"}, {"old": "line 25\n", "new": "twenty-five\n"}]
    replies = (call("read_file", path=path), call("edit_file", path=path, edits=edits), text("Done."))
    async with running(folder, *replies) as client:
        session = await client.new()
        position = await begin(client, session, "change it")
        asked = await question_of(client, session, position)
        assert asked["path"] == path, "whole, as the call itself"
        assert [hunk["lines"][0]["kind"] for hunk in asked["hunks"]] == ["hunk", "hunk"]
        where = f"sessions/{session}/answers"
        assert (await client.ask("POST", where, {"question": asked["id"], "choice": "once", "hunks": [7]}))[0] == 422
        assert (await client.ask("POST", where, {"question": asked["id"], "choice": "once", "hunks": [1]}))[0] == 200
        async with client.stream(session, position) as stream:
            await stream.until("state", state="idle")
    assert (folder / path).read_text() == OLD.replace("line 25\n", "twenty-five\n")


async def test_a_run_is_steered_followed_up_and_stopped(folder: Path) -> None:
    async with running(folder, call("bash", command="echo hi"), text("Steered."), text("Followed.")) as client:
        session = await client.new()
        where = f"sessions/{session}"
        for kind in ("steer", "follow-up"):
            status, problem = await client.ask("POST", f"{where}/{kind}", {"text": "x"})
            assert (status, problem["code"]) == (409, "not_running")
            status, problem = await client.ask("POST", f"{where}/{kind}", {"text": " "})
            assert (status, problem["code"]) == (422, "invalid"), "what is wrong whatever the session does comes first"
        assert await client.ask("POST", f"{where}/abort") == (200, {"returned": []})
        position = await begin(client, session, "say hi")
        asked = await question_of(client, session, position)
        status, problem = await client.ask("POST", f"{where}/prompt", {"text": "another"})
        assert (status, problem["code"]) == (409, "running")
        assert (await client.ask("POST", f"{where}/follow-up", {"text": "and then"}))[0] == 202
        _, described = await client.ask("GET", where)
        assert described["queue"] == [{"kind": "follow_up", "text": "and then"}]
        assert await client.ask("POST", f"{where}/abort", {}) == (200, {"returned": ["and then"]})
        async with client.stream(session, position) as stream:
            events = await stream.until("state", state="idle")
        assert named(events, "answered")[0]["choice"] == "", "the question ends with the run"
        status, problem = await client.ask("POST", f"{where}/answers", {"question": asked["id"], "choice": "once"})
        assert (status, problem["code"]) == (409, "answered")
        _, described = await client.ask("GET", where)
        assert (described["state"], described["questions"], described["queue"]) == ("idle", [], [])


async def test_steering_enters_the_run(folder: Path) -> None:
    async with running(folder, call("bash", command="echo hi"), text("Blue it is.")) as client:
        session = await client.new()
        position = await begin(client, session, "paint it")
        asked = await question_of(client, session, position)
        assert (await client.ask("POST", f"sessions/{session}/steer", {"text": "in blue"}))[0] == 202
        answer = {"question": asked["id"], "choice": "once"}
        await client.ask("POST", f"sessions/{session}/answers", answer)
        async with client.stream(session, position) as stream:
            events = await stream.until("state", state="idle")
        injected = named(events, "messages_injected")
        assert [message["content"][0]["text"] for message in injected[0]["messages"]] == ["in blue"]


# -- streams -------------------------------------------------------------------------------------------------------


async def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(folder: Path) -> None:
    async with running(folder, text("One two three four."), text("Again.")) as client:
        session = await client.new()
        whole = await client.say(session, "count")
        middle = whole[len(whole) // 2][0]
        async with client.stream(session, **{"last-event-id": middle}) as stream:
            rest = await stream.until("state", state="idle")
        assert [*whole[: len(whole) // 2 + 1], *rest] == whole
        async with client.stream(session, 1, **{"last-event-id": middle}) as stream:
            assert await stream.until("state", state="idle") == rest, "what it has seen counts, not its address"
        async with client.stream(session) as stream:
            await begin(client, session, "more")
            later = await stream.until("state", state="idle")
            assert stream.first == {"retry": "1000"}
        assert int(later[0][0]) == int(whole[-1][0]) + 1, "from now on"


async def test_a_place_that_is_not_kept_is_a_reset(folder: Path) -> None:
    places = ("1", "99999999999999999999", "9999999999999999", "x", "-1")
    async with running(folder, text("One."), *[text("More.") for _ in places]) as client:
        session = await client.new()
        await client.say(session, "one")
        for place in places:
            async with client.stream(session, place) as stream:
                reset = await stream.until("reset")
                await begin(client, session, "more")
                events = await stream.until("state", state="idle")
            assert [name for _, name, _ in reset] == ["reset"]
            assert int(events[0][0]) == int(reset[0][0]) + 1, "what follows goes on from there"


async def test_one_stream_carries_several_sessions(folder: Path) -> None:
    async with running(folder, text("One."), text("Two.")) as client:
        one, two = await client.new(), await client.new()
        first, second = await client.say(one, "1"), await client.say(two, "2")
        async with client.http.get(
            f"{client.base}/api/v1/events",
            params={"sessions": f"{one}:{int(first[0][0]) - 1},{two}:{int(second[0][0]) - 1}"},
            headers=client.headers,
        ) as response:
            seen: dict[str, list[Any]] = {one: [], two: []}
            async for line in response.content:
                if line.startswith(b"data: "):
                    import json

                    event = json.loads(line[6:])
                    seen[event["session"]].append((str(event["id"]), event["event"], event["data"]))
                if [len(seen[one]), len(seen[two])] == [len(first), len(second)]:
                    break
        assert seen == {one: first, two: second}


async def test_there_are_only_so_many_readers(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        client.site.readers._most = 1
        session = await client.new()
        async with (
            client.stream(session),
            client.http.get(f"{client.base}/api/v1/sessions/{session}/events", headers=client.headers) as response,
        ):
            assert (response.status, (await response.json())["code"]) == (503, "too_many")
            assert response.headers["retry-after"]


# -- other processes -----------------------------------------------------------------------------------------------


async def test_a_session_in_use_elsewhere_is_read_but_not_changed(folder: Path) -> None:
    store = store_of(folder)
    with store.create(folder, title="theirs") as theirs:
        async with running(folder, text("x")) as client:
            where = f"sessions/{theirs.id}"
            assert (await client.ask("GET", where))[0] == 200
            for method, path, body in (
                ("POST", f"{where}/prompt", {"text": "hi"}),
                ("PATCH", where, {"title": "mine"}),
                ("PATCH", where, {"plan": True}),
                ("DELETE", where, None),
            ):
                status, problem = await client.ask(method, path, body)
                assert (status, problem["code"]) == (409, "in_use"), (method, path)


async def test_a_session_is_let_go_after_its_run_and_taken_up_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.web.channels.LET_GO", 0.2)
    store = store_of(folder)
    async with running(folder, text("One."), text("Two.")) as client:
        session = await client.new()
        events = await client.say(session, "first")
        with pytest.raises(SessionInUse):
            store.open(session)
        async with asyncio.timeout(60):
            while True:
                try:
                    with store.open(session) as opened:
                        opened.rename("from a terminal")
                        break
                except SessionInUse:
                    await asyncio.sleep(0.05)
        assert (await client.ask("PATCH", f"sessions/{session}", {"plan": True}))[0] == 200
        await client.say(session, "second")
        async with client.stream(session, events[-1][0]) as stream:
            told = await stream.until("agent_end")
        assert not named(told, "reset"), "nothing was said meanwhile"
        _, found = await client.ask("GET", f"sessions/{session}/messages")
        assert found["total"] == 4
        _, described = await client.ask("GET", f"sessions/{session}")
        assert described["plan"] is True, "the mode outlives the lock"
        assert described["title"] == "from a terminal"


# -- what else a conversation can do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_used", [False, True])
async def test_readers_read_again_what_another_program_has_changed(folder: Path, is_used: bool) -> None:
    async with running(folder, text("Here."), text("Fine.")) as client:
        session = await client.new()
    async with running(folder, text("Here."), text("Fine.")) as client:
        assert (await client.ask("GET", f"sessions/{session}"))[1]["messages"] == 0
        if is_used:
            with store_of(folder).open(session) as opened:
                agent = Agent(model=MODEL, stream_fn=scripted("Said elsewhere."))
                opened.attach(agent)
                await agent.prompt("typed elsewhere")
        async with client.stream(session) as stream:
            await client.ask("POST", f"sessions/{session}/prompt", {"text": "hi"})
            events = await stream.until("state", state="idle")
        assert bool(named(events, "reset")) is is_used
        assert (await client.ask("GET", f"sessions/{session}/messages"))[1]["total"] == (4 if is_used else 2)


async def test_files_are_attached_by_their_content(folder: Path) -> None:
    async with running(folder, text("A dot.")) as client:
        session = await client.new()
        where = f"sessions/{session}/uploads"
        status, made = await client.ask("POST", where, data=PNG, headers={"content-type": "text/plain"})
        assert (status, made["media_type"], made["size"]) == (201, "image/png", len(PNG))
        status, _ = await client.ask("POST", where, data=b"#!/bin/sh", headers={"content-type": "image/png"})
        assert status == 415
        events = await client.say(session, "what is this?", attachments=[made["id"]])
        prompt = named(events, "agent_start")[0]["prompts"][0]
        assert [block["type"] for block in prompt["content"]] == ["text", "image"]
        other = await client.new()
        given = {"text": "steal it", "attachments": [made["id"]]}
        assert (await client.ask("POST", f"sessions/{other}/prompt", given))[0] == 422


async def test_commands_run_and_prompts_never_are_commands(folder: Path) -> None:
    async with running(folder, text("One."), text("Two.")) as client:
        session = await client.new()
        events = await client.say(session, "/usage")
        assert named(events, "agent_start")[0]["prompts"][0]["content"][0]["text"] == "/usage"
        where = f"sessions/{session}/command"
        for line in ("#key anthropic", "/key sk-ant-1", "/key x", "!ls", " !ls", "hello", "/quit", "/reset"):
            assert (await client.ask("POST", where, {"line": line}))[0] == 422, line
        status, accepted = await client.ask("POST", where, {"line": "/usage"})
        assert status == 202
        async with client.stream(session, accepted["position"]) as stream:
            notice = (await stream.until("notice"))[-1][2]
        assert "tokens" in notice["text"]
        status, problem = await client.ask("POST", f"sessions/{session}/prompt", {"text": "/key sk-ant-secret"})
        assert status == 422
        assert "sk-ant" not in str(problem)


async def test_a_prompt_waits_for_a_command_that_replaces_the_agent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with_agent = OpenAgent.with_agent

    def slowly(opened: OpenAgent, *given: Any) -> OpenAgent:
        begun.set()
        go_on.wait(20)
        return with_agent(opened, *given)

    monkeypatch.setattr(OpenAgent, "with_agent", slowly)
    async with running(folder, text("Hello.")) as client:
        session = await client.new()
        assert (await client.ask("POST", f"sessions/{session}/command", {"line": "/model openai:gpt-5"}))[0] == 202
        assert await asyncio.to_thread(begun.wait, 20)
        asking = asyncio.ensure_future(client.say(session, "Hi."))
        await asyncio.sleep(0.2)
        go_on.set()
        await asking
        _, history = await client.ask("GET", f"sessions/{session}/messages")
    assert [message.get("provider") for message in history["messages"]] == [None, "openai"]


async def test_rewind_asks_and_resets_every_reader(folder: Path) -> None:
    async with running(folder, text("One."), text("Two.")) as client:
        session = await client.new()
        await client.say(session, "first")
        await client.say(session, "second")
        _, accepted = await client.ask("POST", f"sessions/{session}/command", {"line": "/rewind"})
        asked = await question_of(client, session, accepted["position"])
        assert asked["kind"] == "choice"
        newest = asked["choices"][0]
        assert "second" in asked["labels"][newest]
        answer = {"question": asked["id"], "choice": newest}
        assert (await client.ask("POST", f"sessions/{session}/answers", answer))[0] == 200
        async with client.stream(session, accepted["position"]) as stream:
            events = await stream.until("reset")
        # Before the reset: a page that is loaded again misses what is told meanwhile.
        assert [told["text"] for told in named(events, "draft")] == ["second"]
        _, found = await client.ask("GET", f"sessions/{session}/messages")
        assert found["total"] == 2


async def offered(client: Client, session: str) -> dict[str, Any]:
    """The offer of the program that is open in a session."""
    async with asyncio.timeout(60):
        while not (questions := (await client.ask("GET", f"sessions/{session}"))[1]["questions"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return questions[0]


async def offer_by(client: Client, session: str, way: str) -> dict[str, Any]:
    """Makes the program offer something to choose, and returns the offer."""
    if way == "plan":
        await client.ask("PATCH", f"sessions/{session}", {"plan": True})
        await client.say(session, "plan")
        assert (await client.ask("PATCH", f"sessions/{session}", {"plan": False}))[0] == 200
    else:
        assert (await client.ask("POST", f"sessions/{session}/command", {"line": way}))[0] == 202
    return await offered(client, session)


@pytest.mark.parametrize("way", ["plan", "/model", "/thinking", "/rewind"])
async def test_an_offer_that_nobody_answers_hinders_nothing(folder: Path, way: str) -> None:
    async with running(folder, *[text(f"Reply {number}.") for number in range(6)]) as client:
        session = await client.new()
        await client.say(session, "first")
        where = f"sessions/{session}"
        offer = await offer_by(client, session, way)
        _, described = await client.ask("GET", where)
        assert (described["state"], offer["kind"]) == ("idle", "choice")

        assert await client.ask("POST", f"{where}/abort", {}) == (200, {"returned": []})
        _, described = await client.ask("GET", where)
        assert (described["state"], described["questions"]) == ("idle", [])
        answer = {"question": offer["id"], "choice": offer["choices"][0]}
        status, problem = await client.ask("POST", f"{where}/answers", answer)
        assert (status, problem["code"]) == (409, "answered")

        await offer_by(client, session, way)
        events = await client.say(session, "goes on")
        assert [event["choice"] for event in named(events, "answered")] == [""]
        assert (await client.ask("GET", where))[1]["questions"] == []

        offer = await offer_by(client, session, way)
        assert (await client.ask("DELETE", where))[0] == 204


async def test_an_offer_is_answered_after_the_session_was_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.channels.LET_GO", 0.05)
    async with running(folder, *[text(f"Reply {number}.") for number in range(3)]) as client:
        session = await client.new()
        await client.say(session, "first")
        await client.say(session, "second")
        offer = await offer_by(client, session, "/rewind")
        await let_go(client, session)
        answer = {"question": offer["id"], "choice": offer["choices"][0]}
        assert (await client.ask("POST", f"sessions/{session}/answers", answer))[0] == 200
        await let_go(client, session)
        assert len(store_of(folder).load(session).messages) == 2

        offer = await offer_by(client, session, "/rewind")
        await let_go(client, session)
        with store_of(folder).open(session) as other:  # another program goes on with it
            agent = Agent("scripted:m", stream_fn=scripted("Elsewhere."))
            other.attach(agent)
            await agent.prompt("elsewhere")
        answer = {"question": offer["id"], "choice": offer["choices"][0]}
        status, problem = await client.ask("POST", f"sessions/{session}/answers", answer)
        assert (status, problem["code"]) == (409, "answered"), "it was about another history"
        assert len(store_of(folder).load(session).messages) == 4


async def let_go(client: Client, session: str) -> None:
    """Waits until the server has released a session."""
    channel = client.site.channels.of(session)
    async with asyncio.timeout(60):
        while channel.talk is None or channel.talk.holds_session:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_secrets_are_masked_on_their_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6" * 5
    async with running(folder, text(f"It is {secret}, I think.")) as client:
        session = await client.new()
        events = await client.say(session, f"keep {secret} for me")
        assert secret not in str(events)
        assert "It is" in str(named(events, "message_end"))
        _, found = await client.ask("GET", f"sessions/{session}/messages")
        assert secret not in str(found)


async def test_the_model_and_how_it_thinks_are_chosen(folder: Path) -> None:
    async with running(folder, text("One.")) as client:
        session = await client.new(model="anthropic:claude-opus-4-5", thinking="low")
        assert (await client.ask("POST", "sessions", {"model": "nobody:knows"}))[0] == 422
        await client.say(session, "hi")
        _, described = await client.ask("GET", f"sessions/{session}")
        assert (described["chosen"], described["thinking"]) == ("anthropic:claude-opus-4-5", "low")
        change = {"model": "anthropic:claude-sonnet-4-6", "thinking": "high"}
        status, described = await client.ask("PATCH", f"sessions/{session}", change)
        assert (status, described["chosen"], described["thinking"]) == (200, change["model"], "high")
        for level in ("low", "high") * 5:
            _, described = await client.ask("PATCH", f"sessions/{session}", {"thinking": level})
            assert (described["thinking"], described["model"]["thinking_level"]) == (level, level)
        status, found = await client.ask("GET", "models")
        assert change["model"] in [model["model"] for model in found["models"]]
