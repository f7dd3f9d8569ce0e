"""What terminal and browser can do works in editors too, as the protocol's own client sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema

from swink_agent import Agent, UserMessage
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, fail, reply, scripted, stall, text

from .conversing import FORMS, MODEL, Client, conversing, new


def values(options: list[Any]) -> dict[str, str]:
    return {option.id: option.current_value for option in options}


async def test_the_ways_to_give_a_key_are_offered(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    client = Client()
    with_terminal = schema.ClientCapabilities(auth=schema.AuthCapabilities(terminal=True))
    async with conversing(client, "unused") as agent:
        told = await agent.initialize(protocol_version=1)
        kinds = {method.id: type(method).__name__ for method in told.auth_methods}
        assert kinds["stored-key"] == "AuthMethodAgent"
        assert kinds["env-anthropic"] == "EnvVarAuthMethod"
        assert "keys" not in kinds
        told = await agent.initialize(protocol_version=1, client_capabilities=with_terminal)
        terminal = next(method for method in told.auth_methods if method.id == "keys")
        assert (terminal.type, terminal.args) == ("terminal", ["--keys"])
        able = told.agent_capabilities.session_capabilities
        offered = (able.list, able.delete, able.additional_directories, able.fork, able.resume, able.close)
        assert None not in offered
        with pytest.raises(RequestError, match=r"swink keys set PROVIDER.*stored-key.*env-anthropic") as refused:
            await agent.authenticate(method_id="stored-key")
        assert refused.value.code == -32000
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test-0123456789")
        await agent.authenticate(method_id="stored-key")


async def test_model_thinking_and_mode_are_options(desk: Path) -> None:
    client = Client()
    async with conversing(client, "Yes.", "Yes.", approve="smart") as agent:
        session = await new(agent, desk)
        assert [(option.id, option.category) for option in session.config_options] == [
            ("model", "model"),
            ("thinking", "thought_level"),
            ("mode", "mode"),
        ]
        assert values(session.config_options) == {"model": MODEL, "thinking": "off", "mode": "smart"}
        modes = [option.value for option in session.config_options[2].options]
        assert modes == ["ask", "smart", "auto", "all", "none", "plan"]
        assert [mode.id for mode in session.modes.available_modes] == modes
        models = [option.value for option in session.config_options[0].options]
        assert MODEL in models
        assert all(model.startswith(("anthropic:", "local:", "ollama:", "proxy:")) for model in models), models

        async def choose(option: str, value: str) -> dict[str, str]:
            found = await agent.set_config_option(config_id=option, session_id=session.session_id, value=value)
            return values(found.config_options)

        other = "anthropic:claude-sonnet-4-6"
        assert await choose("thinking", "high") == {"model": MODEL, "thinking": "high", "mode": "smart"}
        assert await choose("model", other) == {"model": other, "thinking": "high", "mode": "smart"}
        assert await choose("mode", "plan") == {"model": other, "thinking": "high", "mode": "plan"}
        assert await choose("mode", "all") == {"model": other, "thinking": "high", "mode": "all"}
        for option, value in (("mode", "reckless"), ("model", "nothing"), ("thinking", "much"), ("colour", "red")):
            with pytest.raises(RequestError) as refused:
                await choose(option, value)
            assert refused.value.code == -32602
        await agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        assert client.of("config_option_update") == []  # the editor has changed them itself
        assert await client.say(session, "/approve auto") == "end_turn"
        assert values(client.of("config_option_update")[-1].config_options)["mode"] == "auto"
        assert [update.current_mode_id for update in client.of("current_mode_update")] == ["auto"]
        await client.say(session, f"/model {MODEL}")
        assert values(client.of("config_option_update")[-1].config_options)["model"] == MODEL


async def test_usage_title_and_commands_are_told(desk: Path) -> None:
    client = Client()
    (desk.parent / "config" / "commands").mkdir(parents=True)
    (desk.parent / "config" / "commands" / "greet.md").write_text("Say hello to $ARGUMENTS.\n")
    async with conversing(client, call("list_dir"), "Nothing is there.", "Hello, Ada.") as agent:
        session = await new(agent, desk)
        commands = {
            command.name: command for command in (await client.until("available_commands_update")).available_commands
        }
        assert {"model", "compact", "plan", "usage", "greet"} <= set(commands)
        assert commands["model"].input.root.hint == "[provider:model]"
        assert not {"key", "theme", "quit", "resume"} & set(commands)
        await client.say(session, "What is here?")
        usage = client.of("usage_update")
        assert len(usage) == 2
        assert 0 < usage[0].used <= usage[1].used < usage[1].size == 200_000
        assert usage[1].cost.currency == "USD"
        assert [update.title for update in client.of("session_info_update")] == ["What is here?"]
        assert await client.say(session, "/greet Ada") == "end_turn"
        assert client.said.endswith("Hello, Ada.")


async def test_sessions_are_listed_in_pages_resumed_forked_closed_and_deleted(desk: Path) -> None:
    store = JsonlSessionStore(desk.parent / "data" / "sessions")
    for number in range(52):
        with store.create(desk) as made:
            made.attach(Agent(MODEL, stream_fn=scripted(), messages=[UserMessage(f"question {number}")]))
            made.detach()
    client = Client()
    async with conversing(client, "Once.", "Twice.") as agent:
        first = await agent.list_sessions(cwd=str(desk))
        rest = await agent.list_sessions(cwd=str(desk), cursor=first.next_cursor)
        ids = [info.session_id for info in (*first.sessions, *rest.sessions)]
        assert (len(first.sessions), len(set(ids)), rest.next_cursor) == (50, 52, None)
        with pytest.raises(RequestError, match="cursor"):
            await agent.list_sessions(cursor="nonsense")
        session = await new(agent, desk)
        await client.say(session, "One")
        forked = await agent.fork_session(session_id=session.session_id, cwd=str(desk))
        assert forked.session_id != session.session_id
        assert values(forked.config_options)["model"] == MODEL
        await agent.close_session(session_id=session.session_id)
        with pytest.raises(RequestError, match="no session"):
            await client.say(session, "Closed?")
        client.updates.clear()
        await agent.resume_session(session_id=session.session_id, cwd=str(desk))
        await client.say(session, "Two")
        assert client.said == "Twice."  # nothing was replayed
        assert len(store.load(session.session_id).messages) == 4
        assert len(store.load(forked.session_id).messages) == 2
        await agent.ext_method("session/delete", {"sessionId": session.session_id})
        await agent.ext_method("session/delete", {"sessionId": session.session_id})
        left = await agent.list_sessions(cwd=str(desk))
        assert session.session_id not in [info.session_id for info in left.sessions]


async def test_the_reason_of_a_stop_is_told(desk: Path) -> None:
    client = Client()
    (desk / "a.txt").write_text("a")
    calls = [[call("read_file", path="a.txt")] for _ in range(12)]
    async with conversing(client, *calls, approve="smart") as agent:
        session = await new(agent, desk)
        await client.say(session, "Read it")
    assert "loop_detection stopped it: " in client.said
    client = Client()
    async with conversing(client, *calls, max_turns=2) as agent:
        assert await client.say(await new(agent, desk), "Read it") == "max_turn_requests"
    assert "max_turns stopped it: " in client.said


async def test_the_time_limit_holds(desk: Path) -> None:
    client = Client()
    async with conversing(client, reply("Wait", stall()), timeout=0.2) as agent:
        assert await client.say(await new(agent, desk), "Hi") == "max_turn_requests"
    assert "stopped after 0.2 seconds (--timeout)" in client.said


async def test_a_missing_record_and_untrusted_notes_are_told(desk: Path) -> None:
    (desk.parent / "data").mkdir()
    (desk.parent / "data" / "sessions").write_text("not a folder")
    (desk / "AGENTS.md").write_text("Be brief.\n")
    client = Client()
    async with conversing(client, "Hello.") as agent:
        session = await new(agent, desk)
        await client.until("available_commands_update")
        assert "is not recorded" in client.said
        assert "AGENTS.md" in client.said
        assert await client.say(session, "Hi") == "end_turn"


async def test_a_failed_attempt_is_marked_and_an_error_ends_the_prompt_alone(desk: Path) -> None:
    client = Client()
    replies = (reply("The answer is 4", fail("network")), text("The answer is 42."), fail("invalid_request"))
    async with conversing(client, *replies, "Still here.") as agent:
        session = await new(agent, desk)
        await client.say(session, "What is the answer?")
        assert "The answer is 4\n\n[the text before this was discarded: " in client.said
        assert client.said.endswith("The answer is 42.")
        with pytest.raises(RequestError) as failed:
            await client.say(session, "Again")
        assert failed.value.code == -32603
        assert await client.say(session, "And now?") == "end_turn"
        assert client.said.endswith("Still here.")


async def test_a_command_in_a_question_cannot_leave_its_fence(desk: Path) -> None:
    client = Client(allows="reject_once")
    command = "rm -rf build\n````\n# Safe\n[allow](x)"
    async with conversing(client, call("bash", command=command), "All right.", approve="ask") as agent:
        await client.say(await new(agent, desk), "Clean up")
    [(asked, _)] = client.questions
    shown = asked.content[0].content.text
    fence = shown.partition("\n")[0]
    assert fence == "`" * 5
    assert shown.endswith(f"\n{fence}")
    assert shown.count(fence) == 2
    assert "rm -rf build" in shown


async def test_a_choice_of_the_program_is_a_form_or_a_list(desk: Path) -> None:
    client = Client(chooses="high")
    async with conversing(client, "unused", capabilities=FORMS) as agent:
        session = await new(agent, desk)
        assert await client.say(session, "/thinking") == "end_turn"
        [(message, asked)] = client.forms
        assert message == "Thinking"
        assert "high" in [option.const for option in asked.properties["choice"].one_of]
        assert values(client.of("config_option_update")[-1].config_options)["thinking"] == "high"
    client = Client()
    async with conversing(client, "unused") as agent:
        assert await client.say(await new(agent, desk), "/thinking") == "end_turn"
    assert client.forms == []
    assert "\n```\nThinking\noff  now\nminimal\nlow\n" in client.said
    assert "cannot ask you to choose" in client.said


async def test_a_command_that_editors_do_not_have_is_refused_in_words(desk: Path) -> None:
    client = Client()
    async with conversing(client, "unused") as agent:
        session = await new(agent, desk)
        assert await client.say(session, "/theme dark") == "end_turn"
        assert "/theme is not available in an editor" in client.said
        await client.say(session, "/key sk-secret-0123456789abcdef")
        assert "sk-secret" not in client.said


async def test_delegates_and_compaction_are_shown(desk: Path) -> None:
    client = Client()
    (desk / "a.txt").write_text("a")
    replies = (call("task", prompt="Read a.txt"), call("read_file", path="a.txt"), "It is a.", "The file has an a.")
    async with conversing(client, *replies, "A summary.", approve="smart") as agent:
        session = await new(agent, desk)
        await client.say(session, "What is in a.txt?")
        told = [update for update in client.of("tool_call_update") if update.content]
        shown = [part.content.text for update in told for part in update.content if part.type == "content"]
        assert any("read_file a.txt: done" in words for words in shown), shown
        client.updates.clear()
        await client.say(session, "/compact")
        assert client.said.strip()


async def test_a_cancelled_form_ends_the_prompt(desk: Path) -> None:
    class Slow(Client):
        async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
            self.told.set()
            await asyncio.Event().wait()

    client = Slow()
    async with conversing(client, "unused", capabilities=FORMS) as agent:
        session = await new(agent, desk)
        await client.until("available_commands_update")
        client.told.clear()
        running = asyncio.ensure_future(client.say(session, "/model"))
        await client.told.wait()
        with pytest.raises(RequestError, match="is running"):
            await client.say(session, "Another")
        await agent.cancel(session_id=session.session_id)
        assert await running == "cancelled"


async def test_added_folders_are_open_to_the_tools(desk: Path) -> None:
    (desk.parent / "beside").mkdir()
    (desk.parent / "beside" / "b.txt").write_text("beside the folder")
    client = Client()
    replies = (call("read_file", path=str(desk.parent / "beside" / "b.txt")), "Read.")
    async with conversing(client, *replies, approve="smart") as agent:
        for place in ("beside", str(desk / "missing")):
            with pytest.raises(RequestError) as refused:
                await new(agent, desk, additional_directories=[place])
            assert refused.value.code == -32602
        session = await new(agent, desk, additional_directories=[str(desk.parent / "beside")])
        await client.say(session, "Read it")
    assert "beside the folder" in str(client.of("tool_call_update")[-1].content)


async def test_a_prompt_during_a_run_steers_it_and_ends_with_it(desk: Path) -> None:
    asked: list[list[str]] = []

    def stream(model: Any, context: Any, *more: Any) -> Any:
        asked.append([message.content[0].text for message in context.messages if isinstance(message, UserMessage)])
        is_steered = asked[-1][-1] == "Stop looking."
        answer = "I stopped." if is_steered else call("read_file", path=f"{len(asked)}.txt")
        return scripted(answer)(model, context, *more)

    client = Client()
    async with conversing(client, stream, approve="smart") as agent:
        session = await new(agent, desk)
        looking = asyncio.ensure_future(client.say(session, "Look at all files."))
        await client.until("tool_call")
        assert await client.say(session, "Stop looking.") == "end_turn"
        assert await looking == "end_turn"
        assert client.said.count("I stopped.") == 1
        assert client.of("user_message_chunk") == []  # the editor shows what it sends
        assert asked[-1] == ["Look at all files.", "Stop looking."]
        assert len([texts for texts in asked if "Stop looking." in texts]) == 1
