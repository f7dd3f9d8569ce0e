"""ClaimCheck sends an answer back once if it claims what no tool did."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import Agent, AgentToolResult, MessagesInjected, UserMessage, extract_text, policies, tool
from swink_agent.core.errors import ToolError
from swink_agent.local import ClaimCheck
from swink_agent.testing import call, collect, scripted, text


@tool
async def read_file(path: str) -> str:
    """Reads."""
    return f"{path}:\nprice 12\nprice 30\n"


@tool
async def edit_file(path: str, old: str = "", new: str = "") -> str:
    """Edits."""
    if old == "missing":
        raise ToolError(f"{path} has no such text")
    return f"Edited {path}."


@tool
async def bash(command: str) -> AgentToolResult:
    """Runs, and tells which commands could only read."""
    reads_only = command.startswith(("cat calc.py", "grep "))
    return AgentToolResult.text("42\n" if "awk" in command else "done\n", {"reads_only": reads_only})


@tool
async def deploy(to: str) -> str:
    """Something that the policy has never heard of."""
    return "deployed"


TOOLS = [read_file, edit_file, bash, deploy]


class Conversation:
    """Several prompts in one history, each with its own replies."""

    def __init__(self, *policies: ClaimCheck) -> None:
        self.policies = policies
        self.messages: list[Any] = []

    async def told(self, prompt: str, *replies: Any) -> list[str]:
        """The beginnings of the injected texts. The last reply is repeated."""
        agent = Agent(
            "test:model",
            tools=TOOLS,
            policies=self.policies,
            messages=self.messages,
            stream_fn=scripted(*replies, replies[-1], replies[-1]),
        )
        events = await collect(agent.prompt_stream(prompt))
        self.messages = list(agent.messages)
        return [
            extract_text(message.content).partition(":")[0] + ":"
            for event in events
            if isinstance(event, MessagesInjected)
            for message in event.messages
            if isinstance(message, UserMessage)
        ]


async def told(prompt: str, *replies: Any, policy: ClaimCheck | None = None) -> list[str]:
    return await Conversation(policy or ClaimCheck()).told(prompt, *replies)


UNCHANGED, UNSEEN, UNSHOWN = "Nothing was changed:", "You did not look:", "No tool showed that number:"
READ, EDIT = call("read_file", path="calc.py"), call("edit_file", path="calc.py", old="a - b", new="a + b")


def test_it_is_a_policy_among_the_others() -> None:
    assert policies.ClaimCheck is ClaimCheck


async def test_the_model_is_told_what_to_do_and_what_was_asked() -> None:
    conversation = Conversation(ClaimCheck())

    async def sent_back(prompt: str, *replies: Any) -> str:
        await conversation.told(prompt, *replies)
        told = [extract_text(each.content) for each in conversation.messages if isinstance(each, UserMessage)]
        return told[-1]

    assert await sent_back("Fix  calc.py.", text("I have fixed it.")) == (
        "Nothing was changed: no tool did it. The request was: 'Fix calc.py.'. "
        "Do it now with edit_file, write_file or bash, or say plainly that it was not done."
    )
    assert await sent_back("What does a.txt say?", text("Hello.")) == (
        "You did not look: no tool was called. The request was: 'What does a.txt say?'. "
        "Look it up with read_file, search, list_dir or bash, then answer from what you see."
    )
    assert await sent_back("How many lines has b.txt?", READ, text("It has 77.")) == (
        "No tool showed that number: compute it with bash, or look further with read_file, search or list_dir. "
        "The request was: 'How many lines has b.txt?'. Then answer."
    )
    assert (await sent_back("Which port does c.ini use?", READ, text("It is 80."))).startswith(
        "No tool showed that number: look further with read_file, search or list_dir, or compute it with bash. "
    )
    assert "request" not in await sent_back("Fix calc.py, " + "please " * 40, text("I have fixed it."))


# -- changes -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Fix the function add in calc.py.", "I have fixed the function add in calc.py."),
        ("Fix the function add in calc.py.", "The function `add` has been fixed. It now returns a + b."),
        ("Fix `add`", "I've corrected `add`: it used `if` wrongly."),
        ("Append the line eggs to list.txt", "The line eggs was successfully appended to list.txt."),
        ("Could you set the port to 9000?", "Done! The port is now set to 9000."),
        ("Please rename a.txt to b.txt", "Renamed a.txt to b.txt."),
        ("Count the lines and write the number to n.txt", "I wrote 12 to n.txt."),
        ("Delete old.tmp", "Done."),
        # told instead of done
        ("Add the line eggs to list.txt.", "To add the line, open list.txt and put `eggs` at its end."),
        ("Create add.py with a function add.", "```python\ndef add(a, b):\n    return a + b\n```"),
        ("Read a.txt and write it to b.txt.", "Use `cp a.txt b.txt`."),
    ],
)
async def test_a_change_that_no_tool_made_is_sent_back_once(prompt: str, answer: str) -> None:
    assert await told(prompt, text(answer)) == [UNCHANGED]
    assert await told(prompt, READ, text(answer)) == [UNCHANGED]


@pytest.mark.parametrize(
    "attempt",
    [
        call("edit_file", path="calc.py", old="missing", new="x"),
        call("bash", command="cat calc.py"),
        call("bash", command="grep -n add calc.py | head -3"),
        call("edit_file", path="other.py", old="a", new="b"),
    ],
    ids=["refused", "reading", "a pipe that reads", "another file"],
)
async def test_failed_and_reading_calls_changed_nothing(attempt: Any) -> None:
    assert await told("Fix calc.py.", attempt, text("I have fixed calc.py.")) == [UNCHANGED]


@pytest.mark.table
@pytest.mark.parametrize(
    "attempt",
    [
        EDIT,
        call("bash", command="sed -i 's/a - b/a + b/' calc.py"),
        call("bash", command="python3 tidy.py calc.py"),
        call("bash", command="mv *.py old/"),
        call("bash", command="cat > calc.py"),
        call("deploy", to="calc.py"),
    ],
)
async def test_calls_that_may_have_changed_it_back_the_claim(attempt: Any) -> None:
    assert await told("Fix calc.py.", attempt, text("I have fixed calc.py.")) == []
    assert await told("Fix calc.py.", attempt, text("I have fixed it.")) == []


async def test_the_change_can_be_made_then_and_is_not_asked_for_again() -> None:
    conversation = Conversation(ClaimCheck())
    claim = text("I have fixed calc.py.")
    assert await conversation.told("Fix calc.py.", claim, EDIT, claim) == [UNCHANGED]
    assert [type(message).__name__ for message in conversation.messages] == [
        *("UserMessage", "AssistantMessage", "UserMessage"),
        *("AssistantMessage", "ToolResultMessage", "AssistantMessage"),
    ]


async def test_once_for_each_prompt() -> None:
    conversation = Conversation(ClaimCheck())
    assert await conversation.told("Fix calc.py.", text("I have fixed calc.py.")) == [UNCHANGED]
    assert await conversation.told("Now fix main.py.", text("I have fixed main.py.")) == [UNCHANGED]


@pytest.mark.table
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Fix calc.py.", "I could not fix calc.py: there is no such file."),
        ("Fix calc.py.", "calc.py is already right: nothing was changed."),
        ("Set the port to 9000 in a.ini.", "I was not allowed to change a.ini."),
        ("What did you change?", "I changed the port to 9000."),
        ("When was Python created?", "It was created in 1991."),
        ("Write a haiku about rain.", "Soft rain on the roof\nthe street is written over\nby a slower hand"),
        ("Write a summary of this text: cats sleep a lot.", "Cats sleep a lot."),
        ("Add up 3 and 4.", "7"),
        ("How do I add a user on Linux?", "With `useradd`. The home folder is created by -m."),
        ("Can you fix this sentence: he go home", "He goes home. I have fixed the verb."),
        ("Write a function that adds two numbers.", "I have created one: `def add(a, b): return a + b`"),
        ("Make a joke.", "I made one once. It was put down."),
        ("Mach calc.py heil.", "Ich habe calc.py repariert."),
    ],
)
async def test_talk_and_honest_answers_are_left_alone(prompt: str, answer: str) -> None:
    assert await told(prompt, text(answer)) == []


async def test_changes_of_an_earlier_run_can_be_reported() -> None:
    conversation = Conversation(ClaimCheck())
    assert await conversation.told("Fix calc.py.", READ, EDIT, text("I have fixed calc.py.")) == []
    assert await conversation.told("What did you do to calc.py?", text("I changed a - b to a + b.")) == []


# -- looks ---------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "prompt",
    [
        "Which port does settings.json use?",
        "What does src/app/greeting say?",
        "Which files mention the word harvest?",
        "On which port does the server listen?",
        "Who maintains this package?",
        "How many Python files are in this project?",
        "Summarise README",
        "Is there a Makefile in this folder?",
    ],
)
async def test_a_question_about_files_that_was_answered_without_a_look_is_sent_back(prompt: str) -> None:
    assert await told(prompt, text("It is 8080.")) == [UNSEEN]
    assert await told(prompt, READ, text("It is 12.")) == []


@pytest.mark.table
@pytest.mark.parametrize(
    "prompt",
    [
        "Hello!",
        "What is the capital of France?",
        "What does the HTTP status code 404 mean?",
        "How many days has a leap year?",
        "What is node.js good for?",
        "What is a Makefile?",
        "Which is larger, 1.5 or 1.25?",
        "Explain recursion.",
        "What does this print?\n```python\nprint(open('a.txt').read())\n```",
        "What is in this file?\n\n<stdin>\nhello\n</stdin>",
        "Welche Datei ist gemeint",
    ],
)
async def test_a_question_that_needs_no_file_is_left_alone(prompt: str) -> None:
    assert await told(prompt, text("It is 8080, as everybody knows.")) == []


async def test_facts_of_an_earlier_run_can_be_answered_from_memory() -> None:
    conversation = Conversation(ClaimCheck())
    assert await conversation.told("What does calc.py say?", READ, text("price 12, price 30")) == []
    assert await conversation.told("And what is the first price in calc.py?", text("12")) == []
    assert await conversation.told("And what is the first price in other.py?", text("12")) == [UNSEEN]


# -- numbers -------------------------------------------------------------------------------------------------


async def test_a_number_that_no_tool_gave_is_sent_back() -> None:
    question = "What do the prices in p.txt add up to?"
    look, compute = call("read_file", path="p.txt"), call("bash", command="awk '{s+=$2} END {print s}' p.txt")
    assert await told(question, look, text("They add up to 43.")) == [UNSHOWN]
    assert await told(question, look, text("43"), compute, text("They add up to 42.")) == [UNSHOWN]
    assert await told(question, compute, text("They add up to 42.")) == []
    assert await told(question, compute, text("The sum is 42.00, of 12 and 30.")) == []
    assert await told("What is the price in p.txt?", look, text("It is 13.")) == [UNSHOWN]
    assert await told("What are the prices in p.txt?", look, text("12 and 31")) == []
    assert await told("Who wrote p.txt?", look, text("It does not say.")) == []
    assert await told("What is 3 times 4?", text("12")) == []


async def test_missing_tools_are_not_checked_for() -> None:
    look = call("read_file", path="p.txt")
    question = "How many prices does p.txt have?"
    only_looks = ClaimCheck(changing=())
    assert await told(question, look, text("There are 2."), policy=only_looks) == []
    assert await told("Fix p.txt.", look, text("I have fixed p.txt."), policy=only_looks) == []
    assert await told(question, text("There are 2."), policy=ClaimCheck(looking=())) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["make to ", "\n", "a/", "a.", "`", "```", "I have now just ", "1,", "is the file "])
async def test_a_long_text_is_judged_in_no_time(piece: str) -> None:
    long = piece * (300_000 // len(piece))
    assert await told(f"Fix a.txt. {long}", READ, text(f"I have fixed a.txt. {long}")) == [UNCHANGED]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["\n", " \n", "and ", "please ", ": "])
async def test_a_long_request_that_asks_for_no_change_is_judged_in_no_time(piece: str) -> None:
    long = piece * (3_900 // len(piece))
    assert await told(f"Thanks for a.txt{long}", READ, text("You are welcome.")) == []


async def test_an_agent_without_it_sends_nothing_back() -> None:
    conversation = Conversation()
    assert await conversation.told("Fix calc.py.", text("I have fixed calc.py.")) == []
