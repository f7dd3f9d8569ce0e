"""Recorded sessions in evaluations: makes a case from one, and plays its replies as the model of that case.

A case has the session's prompts, the agent's calls, and the known contents of files before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.value import copy_json

from ..errors import UsageProblem

if TYPE_CHECKING:
    from swink_agent.evals import EvalCase
    from swink_agent.memory import LoadedSession

SESSION_FIELD = "session"
"""The field of a case's metadata that names the session it was made from."""
_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_ID = 48
_LARGEST_FILE = 100_000


def case_of(loaded: LoadedSession, case_id: str | None = None) -> EvalCase:
    """A case that asks the same again and expects the same calls. Raises `UsageProblem` if nothing was asked."""
    from swink_agent.evals import EvalCase, ExpectedCall, ExpectedTrajectory

    info = loaded.info
    said = [extract_text(message.content).strip() for message in loaded.messages if type(message) is UserMessage]
    asked = [text for text in said if text]
    if not asked:
        raise UsageProblem(f"session {loaded.id} has no prompt, so no case can be made from it")
    replies = [message for message in loaded.messages if type(message) is AssistantMessage]
    calls = [call for reply in replies for call in reply.tool_calls]
    expected = [ExpectedCall(call.name, _relative(call.arguments, info.cwd)) for call in calls]
    found, left = _files(loaded.messages, info.cwd)
    title = info.title or asked[0]
    return EvalCase(
        case_id or _slug(title) or loaded.id,
        " ".join(title.split())[:160],
        asked,
        expected_trajectory=ExpectedTrajectory(expected),
        expected_files=[{"path": path, "content": content} for path, content in left.items()],
        setup=found,
        metadata={SESSION_FIELD: loaded.id},
    )


def recorded_replies(loaded: LoadedSession) -> tuple[AssistantMessage, ...]:
    """The model's replies in a session, with paths relative to the working folder."""
    cwd = loaded.info.cwd
    return tuple([_moved(message, cwd) for message in loaded.messages if type(message) is AssistantMessage])


def _slug(text: str) -> str:
    words = _SLUG.sub("-", text.lower()[:200]).strip("-")
    return words if len(words) <= _LONGEST_ID else words[:_LONGEST_ID].rpartition("-")[0] or words[:_LONGEST_ID]


# -- paths ---------------------------------------------------------------------------------------------------


def _relative(arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """Arguments in which paths in the working folder are relative to it."""
    place = cwd.rstrip("/")
    plain = copy_json(dict(arguments))
    if not place:
        return plain
    # The folder counts neither as a part of another path, such as `/backup/home/a` or `/home-old/a`, nor of a word.
    return _replaced(plain, re.compile(rf"(?<![\w./~-]){re.escape(place)}(/(?=[^\s'\"])|(?!\.?[\w~-]))"))


def _moved(message: AssistantMessage, cwd: str) -> AssistantMessage:
    if not message.tool_calls:
        return message
    content = [
        structs.replace(block, arguments=_relative(block.arguments, cwd)) if type(block) is ToolCall else block
        for block in message.content
    ]
    return structs.replace(message, content=tuple(content))


def _replaced(value: Any, folder: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return folder.sub(lambda found: "" if found[1] else ".", value)
    if isinstance(value, dict):
        return {key: _replaced(item, folder) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_replaced(item, folder) for item in cast("list[Any]", value)]
    return value


# -- files ---------------------------------------------------------------------------------------------------


def _files(messages: Sequence[AgentMessage], cwd: str) -> tuple[dict[str, str], dict[str, str]]:
    """The contents of files before and after the session, as far as the tools' results show them."""
    found: dict[str, str] = {}
    left: dict[str, str] = {}
    made: set[str] = set()
    for message in messages:
        details = _details(message)
        path = _within(details.get("path"), cwd)
        if path is None or details.get("is_cut"):
            continue
        old, new = details.get("old"), details.get("new")
        if isinstance(old, str) and isinstance(new, str):
            if details.get("is_new"):
                made.add(path)
            elif path not in made and path not in left:
                found.setdefault(path, old)
            left[path] = new
        elif path not in made and path not in left and (text := _whole(message, details)) is not None:
            found.setdefault(path, text)
    return _small(found), _small(left)


def _details(message: AgentMessage) -> Mapping[str, Any]:
    """The details of a tool's result that is not an error."""
    if type(message) is not ToolResultMessage or message.is_error:
        return {}
    details: object = message.details
    return cast("dict[str, Any]", details) if isinstance(details, dict) else {}


def _small(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if len(text) <= _LARGEST_FILE}


def _within(path: object, cwd: str) -> str | None:
    """A path relative to the working folder; `None` for a path outside it."""
    if not isinstance(path, str) or not path:
        return None
    if path.startswith("/"):
        if not cwd or not path.startswith(f"{cwd.rstrip('/')}/"):
            return None
        path = path[len(cwd.rstrip("/")) + 1 :]
    return None if ".." in PurePosixPath(path).parts else path


def _whole(message: AgentMessage, details: Mapping[str, Any]) -> str | None:
    """The text of a file, if the result holds all of it and nothing else."""
    total = details.get("total_lines")
    if not isinstance(total, int) or details.get("first_line") != 1 or details.get("last_line") != total:
        return None
    text = extract_text(message.content) if type(message) is ToolResultMessage else ""
    return text if len(text.splitlines()) == total else None  # a note would add a line
