"""Background commands in a conversation: `/tasks` shows and stops them, and their end is reported once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from swink_agent.app.talk.conversation import Conversation
from swink_agent.testing import call, scripted, text
from swink_agent.tools.commands.tasks import BackgroundTask

from .conftest import Talk, told

SERVING = "echo listening on 8000; while [ ! -e go ]; do sleep 0.01; done; exit 3"
SHOWN = f"{SERVING[:60]}…"


async def serving(talk: Talk, *commands: str, more: tuple[Any, ...] = ()) -> Conversation:
    """A conversation in which these commands run in the background, and have printed something."""
    starts = [call("bash", command=command, background=True) for command in commands]
    conversation = await talk.open(scripted(starts, text("They run."), *more), sandbox="off", approve="all")
    await conversation.submit("serve")
    await conversation.settled()
    for task in conversation.tasks:
        await asyncio.to_thread(until_printed, task)
    return conversation


def until_printed(task: BackgroundTask) -> None:
    end = time.monotonic() + 30
    while "listening" not in task.newest:
        assert time.monotonic() < end
        time.sleep(0.01)


async def ended(conversation: Conversation) -> None:
    assert conversation.opened is not None
    assert conversation.opened.made.tasks is not None
    for task in conversation.opened.made.tasks.all:
        assert await asyncio.to_thread(task.over.wait, 30)
    await asyncio.sleep(0)


async def test_without_any_it_says_so(talk: Talk) -> None:
    conversation = await talk.open(text("hi"))
    await conversation.submit("/tasks")
    assert told(conversation)[-1] == "no command was started in the background"
    await conversation.submit("/tasks stop b1")
    assert told(conversation, "error")[-1] == "b1 does not run in the background: nothing does"
    await conversation.close()


async def test_the_list_says_what_runs_since_when_and_what_it_printed_last(talk: Talk) -> None:
    conversation = await serving(talk, SERVING)
    assert [task.id for task in conversation.tasks] == ["b1"]
    await conversation.submit("/tasks")
    title, items = talk.front.picked[-1]
    assert title == "Background commands"
    assert [(item.key, item.label) for item in items] == [("b1", f"b1 {SHOWN}")]
    assert items[0].detail.startswith("running ")
    assert items[0].detail.endswith(" │ listening on 8000")
    preview = talk.front.previews[-1]
    assert preview is not None
    assert [line.text for line in await preview("b1")] == ["listening on 8000"]
    await conversation.close()


async def test_one_is_stopped_after_a_question_and_its_end_is_told_once(talk: Talk) -> None:
    conversation = await serving(talk, SERVING)
    talk.front.picks = ["b1", "b1"]
    talk.front.confirmations = ["leave", "stop"]
    await conversation.submit("/tasks")
    assert [task.id for task in conversation.tasks] == ["b1"]
    await conversation.submit("/tasks")
    await ended(conversation)
    assert not conversation.tasks
    stopped = [notice for notice in told(conversation) if "b1" in notice]
    assert stopped == [f"the background command b1 was stopped: {SHOWN}"]
    await conversation.close()


async def test_stop_takes_an_id_or_all(talk: Talk) -> None:
    conversation = await serving(talk, SERVING, SERVING, SERVING)
    await conversation.submit("/tasks stop b2")
    assert [task.id for task in conversation.tasks] == ["b1", "b3"]
    await conversation.submit("/tasks stop b2")
    assert told(conversation, "error")[-1] == "b2 does not run in the background: b1, b3"
    await conversation.submit("/tasks end")
    assert "/tasks stop ID or /tasks stop all" in told(conversation, "error")[-1]
    await conversation.submit("/tasks stop all")
    assert not conversation.tasks
    await conversation.close()


async def test_the_end_of_one_between_prompts_is_told_with_its_exit_code(talk: Talk) -> None:
    conversation = await serving(talk, SERVING)
    changes = talk.front.changes
    (talk.folder / "go").touch()
    await ended(conversation)
    assert told(conversation, "warning")[-1].startswith("the background command b1 ended with exit code 3: echo")
    assert talk.front.changes > changes
    await conversation.submit("/tasks")
    assert talk.front.picked[-1][1][0].detail == "exit code 3 │ listening on 8000"
    await conversation.close()


async def test_another_model_and_another_session_end_them_and_say_so(talk: Talk) -> None:
    conversation = await serving(talk, SERVING)
    await conversation.submit("/model anthropic:claude-opus-4-1")
    assert not conversation.tasks
    assert any("the background command b1 was stopped" in notice for notice in told(conversation))
    await conversation.close()
    conversation = await serving(talk, SERVING)
    assert conversation.opened is not None
    tasks = conversation.opened.made.tasks
    await conversation.submit("/reset")
    assert tasks is not None
    assert not tasks.running
    assert "1 background command of the other session ended with it" in told(conversation)
    await conversation.close()


async def test_leaving_ends_them(talk: Talk) -> None:
    conversation = await serving(talk, SERVING)
    assert conversation.opened is not None
    tasks = conversation.opened.made.tasks
    await conversation.close()
    assert tasks is not None
    assert not tasks.running
