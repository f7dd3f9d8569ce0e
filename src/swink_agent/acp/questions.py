"""Asks an editor's user: the approval of a call as a permission request, other questions as a form.

Text of a model stands in a fence, so that nothing in it is drawn as markup. Anything but a yes is a no.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp import schema
from acp.helpers import text_block, tool_content

from swink_agent.app.talk.front import PickItem
from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.rendering.escaping import safe_line

from .updates import change_of, fenced, title_of

_FIELD = "choice"


def permission(question: ApprovalQuestion, folder: str, redactor: Redactor) -> tuple[Any, list[Any]]:
    """The call and the options of a permission request, masked."""
    request, masked = question.shown or question.request, redactor.redact_value
    arguments = masked(request.arguments)
    change = change_of(masked(question.details), folder)
    call = schema.ToolCallUpdate(
        tool_call_id=request.call_id,
        title=title_of(request.name, arguments),
        content=[
            tool_content(text_block(fenced(_words(AskedQuestion(question, redactor.redact))))),
            *([] if change is None else [change]),
        ],
        # The access in its normal form, never as the model wrote it.
        raw_input={**arguments, **({"access": masked(request.scope["access"])} if question.access else {})},
    )
    trusting = _trusting(question)
    kinds: dict[Any, str] = {"allow_once": "Allow"}
    kinds |= {} if trusting is None else {"allow_always": redactor.redact(_names(question)[trusting])}
    kinds["reject_once"] = "Reject"
    return call, [schema.PermissionOption(option_id=kind, name=name, kind=kind) for kind, name in kinds.items()]


def answer_to(question: ApprovalQuestion, outcome: Any) -> ApprovalAnswer:
    """The answer that an outcome means."""
    chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
    trusting = _trusting(question)
    if chosen == "allow_once":
        return ApprovalAnswer(ApprovalChoice.ONCE)
    if chosen == "allow_always" and trusting is not None:
        return ApprovalAnswer(trusting)
    return ApprovalAnswer(ApprovalChoice.NO)


def form(session_id: str, title: str, items: Sequence[PickItem]) -> Any:
    """A form with one choice."""
    options = [
        schema.EnumOption(const=item.key, title=f"{item.label}: {item.detail}" if item.detail else item.label)
        for item in items
    ]
    choice = schema.ElicitationStringPropertySchema(type="string", title=title, one_of=options)
    wanted = schema.ElicitationSchema(type="object", properties={_FIELD: choice}, required=[_FIELD])
    return schema.ElicitationFormSessionMode(session_id=session_id, requested_schema=wanted)


def chosen_in(response: Any, items: Sequence[PickItem]) -> str | None:
    """The key of the item that was chosen in a form; `None` for none of them."""
    content = response.content if isinstance(response, schema.AcceptElicitationResponse) else None
    chosen = (content or {}).get(_FIELD)
    return chosen if any(item.key == chosen for item in items) else None


def _words(asked: AskedQuestion) -> str:
    """The question as the terminal shows it."""
    text = asked.view
    lines = [text.title, *[line.marked for line in text.lines], *text.notes, *text.warnings, text.why]
    return "\n".join([line for line in lines if line])


def _names(question: ApprovalQuestion) -> dict[ApprovalChoice, str]:
    request = question.shown or question.request
    return {
        ApprovalChoice.SESSION_ACCESS: "For this session, allow commands that ask for no more access",
        ApprovalChoice.SESSION_PREFIX: f"Always allow {safe_line(question.prefix or '')}",
        ApprovalChoice.SESSION_TOOL: f"Always allow {safe_line(request.name)}",
    }


def _trusting(question: ApprovalQuestion) -> ApprovalChoice | None:
    """The offered answer that trusts for the whole session, if there is one."""
    return next((choice for choice in _names(question) if choice in question.choices), None)
