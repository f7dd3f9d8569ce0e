"""The notifications for an editor, tested without an editor."""

from __future__ import annotations

from swink_agent import ToolResultMessage

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
