"""Answers to calls that wait, as a person writes them."""

from __future__ import annotations

import re

import pytest

from swink_agent import Approve, PendingCall, Redactor, Reject
from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.answers import Answers, answers_for, check_form, how_to_answer, named

NO = Reject("the user said no")
REFUND = PendingCall("call_1", "refund", {"order": 17}, reason="Ada decides")
SHIP = PendingCall("call_2", "ship", {"order": 18}, "external")


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("call_1=yes", {"call_1": Approve()}),
        ("call_1= YES ", {"call_1": Approve()}),
        ("call_1=no", {"call_1": NO}),
        ("call_1=no:", {"call_1": NO}),
        ("call_1=No : too much", {"call_1": Reject("too much")}),
        ("call_1=no: a=yes\nb=no", {"call_1": Reject("a=yes\nb=no")}),
        ("call_2=no", {"call_2": NO}),
    ],
)
def test_an_answer_is_yes_or_no_and_a_no_may_have_a_reason(text: str, answers: Answers) -> None:
    assert answers_for([text], [REFUND, SHIP]) == answers


def test_the_calls_that_wait_decide_where_an_id_ends() -> None:
    odd = PendingCall("a=no: b", "refund", {})
    inner = PendingCall("call_1/call=1", "refund", {}, delegates=("clerk",))
    assert answers_for(["a=no: b=yes", "call_1/call=1=no"], [odd, inner]) == {"a=no: b": Approve(), "call_1/call=1": NO}


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["call_1"], "'call_1' is not an answer: an answer is CALL=yes, CALL=no or 'CALL=no: reason' (--answer)"),
        (["call_1=yes: please"], "'call_1=yes: please' is not an answer"),
        (["call_1=nope"], "'call_1=nope' is not an answer"),
        (["=yes"], "'=yes' is not an answer"),
        (["call_3=yes"], "the call 'call_3' does not wait for an answer: call_1, call_2 do (--answer)"),
        (["call_1=yes", "call_1=yes"], "the call 'call_1' has two answers: leave one out (--answer)"),
        (["call_2=yes"], "the call 'call_2' of ship runs outside, so it cannot be approved"),
    ],
)
def test_a_wrong_answer_names_itself_and_no_answer_counts(texts: list[str], problem: str) -> None:
    with pytest.raises(UsageProblem, match=f"^{re.escape(problem)}"):
        answers_for(texts, [REFUND, SHIP])


def test_the_form_is_checked_without_the_calls() -> None:
    check_form(["anything=yes", "anything=no: because"])
    with pytest.raises(UsageProblem, match="is not an answer"):
        check_form(["anything=yes", "\x1b[2J"])


def test_a_call_is_named_on_one_line_without_secrets_and_hidden_characters() -> None:
    redactor = Redactor(["hunter2-hunter2"])
    call = PendingCall(
        "a/b", "re\nfund", {"path": "x\x1b[2J hunter2-hunter2"}, reason="ask\nhunter2-hunter2", delegates=("clerk",)
    )
    line = named(call, redactor)
    assert line.startswith("a/b: clerk > re")
    assert not any(hidden in line for hidden in ("\n", "\x1b", "hunter2"))
    assert named(SHIP, redactor) == "call_2: ship order=18 (waits for its result from outside)"


def test_the_command_to_answer_with_can_be_pasted_into_a_shell() -> None:
    odd = PendingCall("it's", "refund", {})
    assert how_to_answer([REFUND, SHIP, odd], "2026", cwd="a b") == (
        "swink -p -C 'a b' --resume 2026 --answer call_1=yes --answer 'it'\"'\"'s=yes'"
    )
    assert how_to_answer([SHIP], "2026") == ""
