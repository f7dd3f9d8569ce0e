"""Replaying a session of the standard agent: a person's answers are given again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ModelSpec
from swink_agent.app.agent.standard import AgentOptions, standard_agent
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.replaying import replay_session
from swink_agent.app.settings.settings import load_settings
from swink_agent.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.memory import JsonlSessionStore, LoadedSession, ReplayReport
from swink_agent.testing import call, scripted, text

YES, NO = ApprovalChoice.ONCE, ApprovalChoice.NO


class Person:
    """Answers one question after the other."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.answers = list(answers)

    def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer:
        return self.answers.pop(0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path / "work"


def options(root: Path, **more: Any) -> AgentOptions:
    return AgentOptions(
        settings=load_settings(path=Path("/no/such"), environ={}, flags={"sandbox": "off"}),
        credentials=Credentials(root.parent / "keys.json", environ={}),
        folder=root,
        model=ModelSpec("test", "model"),
        **more,
    )


async def recorded(root: Path, person: Person, *replies: Any, prompts: int = 1) -> LoadedSession:
    store = JsonlSessionStore(root.parent / "sessions", sync=False)
    with (
        standard_agent(options(root, ask=person, stream_fn=scripted(*replies))) as made,
        store.create(cwd=str(root)) as session,
    ):
        session.attach(made.agent)
        for _ in range(prompts):
            assert (await made.agent.prompt("go")).error is None
    assert not person.answers
    return store.load(session.id)


async def replayed(loaded: LoadedSession, root: Path) -> ReplayReport:
    today = options(root)
    return await replay_session(loaded, today.settings, today.credentials, root)


async def test_a_change_of_which_a_person_accepted_a_part(root: Path) -> None:
    edits = [{"old": "one", "new": "ONE"}, {"old": "three", "new": "THREE"}]
    person = Person(ApprovalAnswer(YES, "the user accepted 1 of 2", {"path": "a.txt", "edits": edits[:1]}))
    loaded = await recorded(root, person, call("edit_file", path="a.txt", edits=edits), text("Done."))
    assert (root / "a.txt").read_text() == "ONE\ntwo\nthree\n"

    report = await replayed(loaded, root)
    assert report.divergence is None, str(report)
    assert (root / "a.txt").read_text() == "ONE\ntwo\nthree\n"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("answers", [(YES, NO), (NO, YES), (YES, NO, YES, NO)], ids=" ".join)
@pytest.mark.parametrize("is_same", [True, False], ids=["the same call", "another call"])
async def test_call_ids_that_recur_have_an_answer_each(
    root: Path, answers: tuple[ApprovalChoice, ...], is_same: bool
) -> None:
    """Some models count their calls from the start in each reply."""
    replies: list[Any] = []
    for number in range(len(answers)):
        path = "new.txt" if is_same else f"{number}.txt"
        replies += [call("write_file", path=path, content="x").with_id("call_0"), text("Done.")]
    person = Person(*[ApprovalAnswer(answer, "not that one" * (answer is NO)) for answer in answers])
    loaded = await recorded(root, person, *replies, prompts=len(answers))
    report = await replayed(loaded, root)
    assert report.divergence is None, str(report)


async def test_a_call_that_nobody_was_asked_about_has_the_id_of_one_that_was_refused(root: Path) -> None:
    replies = [
        call("read_file", path="a.txt").with_id("call_0"),
        call("write_file", path="b.txt", content="x").with_id("call_0"),
        call("read_file", path="a.txt").with_id("call_0"),
        text("Done."),
    ]
    loaded = await recorded(root, Person(ApprovalAnswer(NO, "not now")), *replies)
    report = await replayed(loaded, root)
    assert report.divergence is None, str(report)


async def test_an_abort_while_the_second_of_two_calls_was_asked_about(root: Path) -> None:
    calls = [call("write_file", path=f"new-{number}.txt", content="x") for number in (1, 2)]
    store = JsonlSessionStore(root.parent / "sessions", sync=False)
    asked: list[str] = []

    def person(question: ApprovalQuestion) -> Any:
        asked.append(question.request.call_id)
        if len(asked) == 1:
            return ApprovalAnswer(YES)
        made.agent.abort()
        return asyncio.Event().wait()

    with (
        standard_agent(options(root, ask=person, stream_fn=scripted(calls, text("Done.")))) as made,
        store.create(cwd=str(root)) as session,
    ):
        session.attach(made.agent)
        await made.agent.prompt("go")
        await made.agent.prompt("and now?")
    assert not (root / "new-1.txt").exists()
    report = await replayed(store.load(session.id), root)
    assert report.divergence is None, str(report)
