"""Access beyond the sandbox: always asked about, shown in its normal form, and trusted for no more than shown."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import Approve, ApproveWith, Defer, PendingCall, ProposedCall, Reject
from swink_agent.approvals.access import asks_no_more
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion, Approvals
from swink_agent.approvals.call_rules import CallRules
from swink_agent.approvals.commands.rules import CommandRules
from swink_agent.approvals.question import QuestionView
from swink_agent.core.secrets.redaction import Redactor

HERE = {"folder": "/home/ada/project", "sandbox": "usual", "backend": "bubblewrap"}
HOSTS = {"network": ["example.org"]}
ONCE, SESSION, ALWAYS, NO = (
    ApprovalChoice.ONCE,
    ApprovalChoice.SESSION_ACCESS,
    ApprovalChoice.ALWAYS,
    ApprovalChoice.NO,
)


def asking(
    access: Any, command: str = "curl x", *, walls: str = "usual", written: Any = None, **more: Any
) -> ProposedCall:
    """A call as the tool proposes it: the scope has the normal form, the arguments what the model wrote."""
    scope = {**HERE, "access": access, "walls": walls, "sandbox": f"wider {access}"}
    arguments = {"command": command, "access": access if written is None else written, **more}
    return ProposedCall("call-1", "bash", arguments, scope)


class Person:
    """Gives the prepared answers and remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.questions: list[ApprovalQuestion] = []

    def __call__(self, question: ApprovalQuestion) -> Any:
        self.questions.append(question)
        return self.answers.pop(0)


@pytest.mark.parametrize("mode", ["smart", "auto", "ask", "all"])
async def test_access_is_a_question_in_every_mode_whatever_is_allowed_or_trusted(mode: Any) -> None:
    person = Person("once", "once", "no")
    rules = CallRules("/home/ada/project", allow=["bash", "bash: curl *", "bash: ls"])
    approve = Approvals(person, mode=mode, calls=rules)
    approve.trust.trust_tool("bash", scope=asking(HOSTS).scope)
    approve.trust.trust_command("curl", scope=asking(HOSTS).scope)
    assert await approve(asking(HOSTS)) == Approve()
    assert await approve(asking(HOSTS, "ls")) == Approve()
    assert await approve(asking(HOSTS, "ls")) == Reject("the user said no")
    assert len(person.questions) == 3


async def test_denied_calls_are_refused_without_a_question_and_mode_none_refuses_all() -> None:
    person = Person()
    approve = Approvals(person, mode="all", rules=CommandRules(deny=["git push"]))
    assert await approve(asking(HOSTS, "git push")) == Reject("the rule 'git push' denies it")
    approve.mode = "none"
    assert isinstance(await approve(asking(HOSTS)), Reject)
    assert person.questions == []


async def test_with_nobody_to_ask_it_is_rejected_in_words_that_help() -> None:
    assert await Approvals(mode="all")(asking({"network": ["a.org"], "write": ["/opt/x"]})) == Reject(
        "a person must allow access beyond the sandbox (a.org, writing in /opt/x), and no one can answer a question "
        "here; work without it, and say in the answer what is left to do"
    )


async def test_the_question_shows_the_normal_form_and_never_what_the_model_wrote() -> None:
    person = Person("once")
    access = {"network": ["example.org", "*.pypi.org:8443"], "write": ["/opt/tools"], "read": ["/home/ada/.aws"]}
    written = {"network": ["EXAMPLE.org.", "*.PyPI.org:8443"], "write": ["/opt/./link"], "read": ["~/.aws"]}
    await Approvals(person)(asking(access, "make\ninstall", written=written, reason="to\x1b[2J install", timeout=5))
    (question,) = person.questions
    assert question.access == access
    assert question.reason == "to\\u{1b}[2J install"
    assert question.display.split("\n") == [
        "bash",
        "! network: example.org, *.pypi.org:8443",
        "! write: /opt/tools",
        "! read: /home/ada/.aws",
        "│ make",
        "│ install",
        "  reason: to\\u{1b}[2J install",
        "  timeout: 5",
    ]
    assert question.render() == question.display
    assert question.why == (
        "opens example.org and *.pypi.org:8443, writing in /opt/tools, reading in /home/ada/.aws for this command, or "
        "longer as you choose; it says: to\\u{1b}[2J install"
    )
    assert question.warnings[:2] == (
        "passwords and keys in /home/ada/.aws can be read and sent to every host that may be reached; the model and "
        "its provider see what is printed",
        "*.pypi.org:8443 stands for many hosts, and anybody may own one of them",
    )


async def test_the_whole_network_is_named_as_such() -> None:
    person = Person("once")
    await Approvals(person)(asking({"network": True}))
    (question,) = person.questions
    assert question.access == {"network": True}
    assert "! network: the whole network of this machine, unfiltered" in question.display
    assert question.warnings == ("nothing is filtered: all that the command can read can be sent anywhere",)
    assert question.why.endswith("it gives no reason")


async def test_hosts_that_are_not_single_public_ones_are_warned_about_in_words() -> None:
    person = Person("once", "once", "always")
    kept: list[str] = []
    approve = Approvals(person, remember=kept.extend)
    await approve(asking({"network": ["*"]}))
    await approve(asking({"network": ["127.0.0.1:8000", "10.0.0.0/8"]}))
    every, near = (question.warnings for question in person.questions)
    assert every == (
        "opens every public host: allow it only if the command is about that",
        "* stands for many hosts, and anybody may own one of them",
    )
    assert near == (
        "opens this machine's own services and the private network that this machine is in: allow it only if the "
        "command is about that",
    )
    await approve(asking({"network": ["*"]}))  # answered with a choice that was not offered
    assert kept == []


async def test_a_question_cannot_change_what_is_asked_and_trusted() -> None:
    person = Person(SESSION)

    def ask(question: ApprovalQuestion) -> Any:
        assert question.access is not None
        question.access["network"].append("evil.org")
        question.request.scope["access"]["network"].append("evil.org")
        return person(question)

    approve = Approvals(ask)
    request = asking({"network": ["a.org"]})
    assert await approve(request) == Approve()
    assert request.scope["access"] == {"network": ["a.org"]}
    approve_after = Approvals(Person("no"), trust=approve.trust)
    assert await approve_after(asking({"network": ["evil.org"]})) == Reject("the user said no")


async def test_a_secret_in_hosts_folders_and_reason_is_masked_where_it_is_shown() -> None:
    person = Person("once")
    redactor = Redactor()
    redactor.learn("s3cr3t-value-abc", "KEY")
    access = {"network": ["s3cr3t-value-abc.evil.org"]}
    await Approvals(person, redactor=redactor)(asking(access, reason="s3cr3t-value-abc"))
    (question,) = person.questions
    for text in (question.display, question.why, question.reason, question.render()):
        assert "s3cr3t-value-abc" not in text
    rows = QuestionView(question).all_rows(80)
    assert not any("s3cr3t-value-abc" in row.text for row in rows)


async def test_a_long_reason_is_cut_and_a_reason_alone_asks_for_nothing() -> None:
    person = Person("once")
    approve = Approvals(person, rules=CommandRules.standard(search_path="/usr/bin:/bin"))
    await approve(asking(HOSTS, reason="\x1b" * 500))
    assert len(person.questions[0].reason) == 500
    assert await approve(ProposedCall("1", "bash", {"command": "git status", "reason": "look"}, HERE)) == Approve()
    assert len(person.questions) == 1


async def test_access_that_the_tool_did_not_name_is_asked_about_and_cannot_be_trusted() -> None:
    person = Person(SESSION, ALWAYS)
    approve = Approvals(person, mode="all", remember=lambda hosts: None)
    for scope in ({}, {**HERE, "access": {"net": 1}, "walls": "usual"}):
        call = ProposedCall("1", "bash", {"command": "x", "access": HOSTS}, scope)
        assert await approve(call) == Approve()
    for question in person.questions:
        assert question.access is None
        assert question.choices == (ONCE, NO)
        assert question.why == "it asks for access beyond the sandbox that cannot be shown, so it cannot run"


# -- answers -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("access", "mode", "has_remember", "choices"),
    [
        (HOSTS, "smart", True, (ONCE, SESSION, ALWAYS, NO)),
        (HOSTS, "all", True, (ONCE, SESSION, ALWAYS, NO)),
        (HOSTS, "auto", True, (ONCE, SESSION, ALWAYS, NO)),
        (HOSTS, "ask", True, (ONCE, ALWAYS, NO)),
        (HOSTS, "smart", False, (ONCE, SESSION, NO)),
        ({"network": True}, "smart", True, (ONCE, SESSION, NO)),
        *[
            ({"network": ["example.org", host]}, "smart", True, (ONCE, SESSION, NO))
            for host in ("*", "*:22", "127.0.0.1", "10.0.0.0/8", "100.64.0.0/10", "169.254.169.254", "8.0.0.0/5")
        ],
        ({"network": ["8.8.0.0/16"]}, "smart", True, (ONCE, SESSION, ALWAYS, NO)),
        ({**HOSTS, "write": ["/opt"]}, "smart", True, (ONCE, SESSION, NO)),
        ({"write": ["/opt"]}, "smart", True, (ONCE, SESSION, NO)),
        ({**HOSTS, "read": ["/opt"]}, "smart", True, (ONCE, SESSION, NO)),
    ],
)
async def test_the_choices(access: Any, mode: Any, has_remember: bool, choices: Any) -> None:
    person = Person("no")
    await Approvals(person, mode=mode, remember=(lambda _: None) if has_remember else None)(asking(access))
    assert person.questions[0].choices == choices
    assert person.questions[0].prefix is None


async def test_once_is_for_one_call_and_session_for_what_asks_for_no_more() -> None:
    person = Person("once", "session_access", "once", "once", "once")
    approve = Approvals(person)
    wide = {"network": ["*.example.org", "pypi.org:8080"], "write": ["/opt/tools"]}
    await approve(asking(wide))
    await approve(asking(wide))
    for less in (
        wide,
        {"network": ["a.example.org:443"]},
        {"network": ["pypi.org:8080"], "write": ["/opt/tools/bin"]},
        {"write": ["/opt/tools"]},
    ):
        assert await approve(asking(less, "another command")) == Approve()
    assert len(person.questions) == 2
    for more in ({"network": ["example.org"]}, {"network": True}, {"read": ["/opt/tools"]}):
        await approve(asking(more))
    assert len(person.questions) == 5


async def test_trust_in_access_is_bound_to_the_sandbox_the_folder_and_the_tool() -> None:
    person = Person("session_access", "no", "no")
    approve = Approvals(person, tools={"bash": "command", "shell": "command"})
    await approve(asking(HOSTS))
    assert await approve(asking(HOSTS)) == Approve()
    assert await approve(asking(HOSTS, walls="other")) == Reject("the user said no")
    elsewhere = asking(HOSTS)
    elsewhere.scope["folder"] = "/home/ada/other"
    assert await approve(elsewhere) == Reject("the user said no")
    assert approve.trust.covers(asking(HOSTS))
    approve.trust.forget()
    assert not approve.trust.covers(asking(HOSTS))


async def test_trust_tells_which_hosts_it_opens() -> None:
    approve = Approvals(Person("session_access", "once", "session_access", "session_access"))
    await approve(asking({"network": ["a.org", "b.org"], "write": ["/opt"]}))
    await approve(asking({"network": ["c.org"]}))
    assert approve.trust.hosts == ("a.org", "b.org")
    await approve(asking({"network": True}))
    await approve(asking({"read": ["/opt"]}))
    assert approve.trust.hosts == ("a.org", "b.org", "*")


async def test_ask_asks_again_whatever_was_trusted_before() -> None:
    person = Person("session_access", "no")
    approve = Approvals(person)
    await approve(asking(HOSTS))
    approve.mode = "ask"
    assert await approve(asking(HOSTS)) == Reject("the user said no")


async def test_always_remembers_the_hosts_and_trusts_them_for_the_session() -> None:
    person = Person("always")
    kept: list[Any] = []
    approve = Approvals(person, remember=kept.append)
    access = {"network": ["a.org", "b.org:8080"]}
    assert await approve(asking(access)) == Approve()
    assert kept == [["a.org", "b.org:8080"]]
    assert await approve(asking({"network": ["a.org"]}, "wget y")) == Approve()


async def test_always_where_it_was_not_offered_is_once() -> None:
    person = Person("always", "always", "no")
    kept: list[Any] = []
    approve = Approvals(person, remember=kept.append)
    access = {"network": ["a.org"], "write": ["/opt/x"]}
    for _ in range(2):
        assert await approve(asking(access)) == Approve()
    assert await approve(asking(access)) == Reject("the user said no")
    assert kept == []


async def test_hosts_that_cannot_be_remembered_are_trusted_for_the_session(caplog: pytest.LogCaptureFixture) -> None:
    async def remember(hosts: list[str]) -> None:
        raise OSError("disk full")

    person = Person("always")
    approve = Approvals(person, remember=remember)
    for _ in range(2):
        assert await approve(asking(HOSTS)) == Approve()
    assert "could not be remembered" in caplog.text


async def test_trust_in_a_tool_or_prefix_that_an_answer_names_is_not_given() -> None:
    person = Person("session_tool", "session_prefix", "no")
    approve = Approvals(person, rules=CommandRules())
    for _ in range(2):
        assert await approve(asking(HOSTS, "git commit")) == Approve()
    assert await approve(ProposedCall("1", "bash", {"command": "git commit"}, HERE)) == Reject("the user said no")


@pytest.mark.parametrize(
    "changed",
    [
        {"command": "curl x"},
        {"command": "curl x", "access": {"network": ["evil.org"]}},
        {"command": "curl x", "access": {"network": ["example.org"], "write": ["/opt"]}},
        {"command": "curl x", "access": None},
    ],
)
async def test_an_answer_cannot_change_access(changed: dict[str, Any]) -> None:
    approve = Approvals(Person(ApprovalAnswer(ONCE, "", changed)))
    assert await approve(asking(HOSTS)) == Reject(
        "an answer cannot change the access that was asked about: call it again to ask for other"
    )


async def test_an_answer_cannot_add_access_and_may_change_the_rest() -> None:
    plain = ProposedCall("1", "bash", {"command": "make"}, HERE)
    approve = Approvals(Person(ApprovalAnswer(ONCE, "", {"command": "make", "access": {"network": True}})))
    assert isinstance(await approve(plain), Reject)
    arguments = {"command": "curl y", "access": HOSTS}
    approve = Approvals(Person(ApprovalAnswer(ONCE, "shorter", arguments)))
    assert await approve(asking(HOSTS)) == ApproveWith(arguments, "shorter")


async def test_a_call_that_waits_is_asked_about_with_its_access() -> None:
    person = Person(Defer("on holiday"), "session_access")
    approve = Approvals(person)
    request = asking(HOSTS)
    assert await approve(request) == Defer("on holiday")
    waiting = PendingCall("call-1", "bash", request.arguments, reason="on holiday", scope=request.scope)
    assert await approve.ask_later(waiting) == Approve()
    assert person.questions[1].access == HOSTS
    assert person.questions[1].choices == (ONCE, SESSION, NO)
    assert await approve(asking(HOSTS)) == Approve()


@pytest.mark.table
@pytest.mark.parametrize(
    ("wanted", "trusted", "is_no_more"),
    [
        ({"network": True}, {"network": True}, True),
        ({"network": ["a.org"]}, {"network": True}, True),
        ({"network": True}, {"network": ["*"]}, False),
        ({"network": ["a.org"]}, {"network": ["*"]}, True),
        ({"network": ["10.0.0.1"]}, {"network": ["*"]}, False),
        ({"network": ["a.org"]}, {"write": ["/opt"]}, False),
        ({"write": ["/opt/a"]}, {"write": ["/opt"]}, True),
        ({"write": ["/optional"]}, {"write": ["/opt"]}, False),
        ({"write": ["/opt"]}, {"write": ["/opt/a"]}, False),
        ({"read": ["/opt"]}, {"write": ["/opt"]}, False),
        ({"write": ["/opt"], "network": ["a.org"]}, {"write": ["/opt"]}, False),
    ],
)
def test_no_more(wanted: Any, trusted: Any, is_no_more: bool) -> None:
    assert asks_no_more(wanted, trusted) is is_no_more


async def test_two_grants_do_not_add_up() -> None:
    """Reading keys and reaching a host were shown apart: both at once is another thing."""
    person = Person("session_access", "session_access", "no")
    approve = Approvals(person)
    await approve(asking({"network": ["a.org"]}))
    await approve(asking({"read": ["/home/ada/.aws"]}))
    both = asking({"network": ["a.org"], "read": ["/home/ada/.aws"]})
    assert await approve(both) == Reject("the user said no")


# -- rows ----------------------------------------------------------------------------------------------------


async def test_every_window_says_what_opens_and_for_how_long() -> None:
    person = Person("once")
    await Approvals(person, remember=lambda _: None)(asking(HOSTS, "x\n" * 300, reason="the sources"))
    view = QuestionView(person.questions[0])
    for width, height in ((80, 24), (100, 12), (60, 8)):
        text = " ".join(row.text.strip() for row in view.rows(width, height)).replace("┆ ", "")
        assert "! opens example.org for this comman" in text
    assert list(view.keys) == ["y", "n", "b", "s", "a", "v"]
    assert view.content_rows(80).__next__().text == "│! network: example.org"
    offer = " ".join(view.offer(80))
    assert "for this [s]ession, unless it needs more" in offer
    assert "[a]lways, every command to these hosts" in offer


# -- without a sandbox -----------------------------------------------------------------------------------------

OUT = {"sandbox": False}


def leaving(command: str = "docker ps", **more: Any) -> ProposedCall:
    return asking(OUT, command, reason="to see what runs", **more)


@pytest.mark.parametrize("mode", ["smart", "auto", "ask", "all"])
async def test_a_command_without_the_sandbox_is_a_question_with_a_warning_in_every_mode(mode: Any) -> None:
    person = Person("once", "no")
    rules = CallRules("/home/ada/project", allow=["bash", "bash: docker *"])
    approve = Approvals(person, mode=mode, calls=rules, remember=lambda hosts: None)
    approve.trust.trust_tool("bash", scope=leaving().scope)
    approve.trust.trust_command("docker ps", scope=leaving().scope)
    assert [await approve(leaving()), await approve(leaving())] == [Approve(), Reject("the user said no")]
    question = person.questions[0]
    assert question.access == OUT
    assert question.choices == ((ONCE, NO) if mode == "ask" else (ONCE, SESSION, NO))
    assert (
        question.why == "runs this very command without the sandbox, once or for the session; it says: to see what runs"
    )
    assert question.warnings == (
        "nothing holds it: it can read, change and send all that you can, also passwords and keys",
    )
    assert question.display.splitlines()[1] == "! sandbox: none, nothing holds this command"


async def test_a_command_without_the_sandbox_is_refused_unattended_and_in_none() -> None:
    for approve in (Approvals(mode="all"), Approvals(Person("once"), mode="none")):
        assert isinstance(await approve(leaving()), Reject)


async def test_trust_without_the_sandbox_is_for_the_same_text_in_the_same_folder() -> None:
    person = Person("session_access", *["no"] * 9)
    approve = Approvals(person, mode="all")
    assert await approve(leaving()) == Approve()
    assert await approve(leaving(background=True)) == Approve()
    assert len(person.questions) == 1
    elsewhere = leaving()
    elsewhere.scope["folder"] = "/home/ada/other"
    others = [leaving("docker ps "), leaving("docker ps -a"), leaving(walls="other"), elsewhere]
    others += [asking(HOSTS, "docker ps"), asking({"write": ["/opt"]}, "docker ps")]
    for request in others:
        assert await approve(request) == Reject("the user said no"), request
    assert approve.trust.hosts == ()


async def test_trust_in_other_access_never_leaves_the_sandbox() -> None:
    person = Person("session_access", "no")
    approve = Approvals(person, mode="all")
    assert await approve(asking({"network": True}, "docker ps")) == Approve()
    assert await approve(leaving()) == Reject("the user said no")


@pytest.mark.parametrize("access", [{"sandbox": True}, {"sandbox": 0}, {"sandbox": False, "network": ["a.org"]}])
async def test_another_form_of_leaving_the_sandbox_is_shown_as_unknown(access: dict[str, Any]) -> None:
    person = Person("no")
    await Approvals(person)(asking(access))
    assert person.questions[0].access is None
    assert person.questions[0].choices == (ONCE, NO)


@pytest.mark.parametrize("height", [6, 12, 40])
async def test_the_warning_of_a_command_without_the_sandbox_is_seen_in_every_window(height: int) -> None:
    person = Person("no")
    await Approvals(person)(leaving("docker ps\n" * 30))
    view = QuestionView(person.questions[0])
    shown = " ".join(row.text for row in view.rows(100, height))
    assert "without the sandbox" in shown
    assert "nothing holds it" in shown


# -- names that programs run by themselves -----------------------------------------------------------------------


async def test_a_question_about_a_protected_name_says_which_program_runs_it_and_when() -> None:
    person = Person("no")
    await Approvals(person, mode="all")(asking({"write": ["/home/ada/project/.vscode"]}))
    assert person.questions[0].warnings == (
        "VS Code runs /home/ada/project/.vscode, or reads it as settings, when the folder is opened: what is written "
        "there can make it run anything",
    )


RUNS = {"name": ".vscode", "program": "VS Code", "when": "when the folder is opened"}


def writing(**scope: Any) -> ProposedCall:
    path = ".vscode/tasks.json"
    return ProposedCall(
        "1", "write_file", {"path": path, "content": "x"}, {**HERE, "path": path, "runs": RUNS, **scope}
    )


@pytest.mark.parametrize("mode", ["smart", "auto", "ask", "all"])
async def test_a_file_that_a_program_runs_is_a_question_in_every_mode(mode: Any) -> None:
    person = Person("once", "session_tool", "no")
    approve = Approvals(person, mode=mode, calls=CallRules("/home/ada/project", allow=["write_file"]))
    approve.trust.trust_tool("write_file", scope=writing().scope)
    answers = [await approve(writing()) for _ in range(3)]
    assert answers == [Approve(), Approve(), Reject("the user said no")]
    question = person.questions[0]
    assert question.choices == (ONCE, NO)
    assert question.why == "VS Code runs .vscode, or reads it as settings, when the folder is opened"
    assert question.warnings == (f"{question.why}: what is written there can make it run anything",)


async def test_a_file_that_a_program_runs_is_refused_unattended_and_in_none() -> None:
    for approve in (Approvals(mode="all"), Approvals(Person("once"), mode="none")):
        assert isinstance(await approve(writing()), Reject)
    assert "a person must allow this" in (await Approvals(mode="auto")(writing())).reason  # type: ignore[union-attr]
    assert isinstance(await Approvals(mode="auto")(writing(runs="?")), Reject)
