"""The notifications for an editor, tested without an editor."""

from __future__ import annotations

from swink_agent import Agent, ToolResultMessage
from swink_agent.app.shown.changes import Changes
from swink_agent.testing import fail, reply, scripted, text

LIST = [{"text": "Read", "status": "done"}, {"text": "Write", "status": "in_progress"}]


def test_the_list_of_things_to_do_is_the_editors_plan() -> None:
    from swink_agent.acp.updates import replayed  # which loads the protocol's package, and that takes a second

    message = ToolResultMessage("c1", "kept", False, {"todo": LIST}, "todo")
    plan = list(replayed([message], "/work"))[-1]
    assert plan.session_update == "plan"
    assert [(entry.content, entry.status) for entry in plan.entries] == [
        ("Read", "completed"),
        ("Write", "in_progress"),
    ]


async def test_the_text_of_a_failed_attempt_is_not_joined_to_the_answer() -> None:
    from swink_agent.acp.updates import SessionUpdates

    model = scripted(reply("The answer is 4", fail("network")), text("The answer is 42."))
    changes, updates, told = Changes(), SessionUpdates("/work"), []
    async for event in Agent("scripted:m", stream_fn=model).prompt_stream("q"):
        told += [update for change in changes.of(event) for update in updates.of(change)]
    said = "".join([update.content.text for update in told if update.session_update == "agent_message_chunk"])
    before, _, after = said.partition("\n\n[the text before this was discarded: attempt 1 failed")
    assert (before, after.rpartition("\n\n")[2]) == ("The answer is 4", "The answer is 42.")
    assert told[0].message_id != told[-1].message_id
