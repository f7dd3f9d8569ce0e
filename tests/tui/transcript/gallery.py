"""A conversation with one block of each kind, for pictures."""

from __future__ import annotations

from swink_agent import Cost, ToolOutcome, Usage
from swink_agent.app.talk.delegates import DelegateCall, DelegateProgress
from swink_agent.core.events import MessageEnd
from swink_agent.core.types import AssistantMessage
from swink_agent.tui.transcript import Block, NoticeBlock, ReplyBlock, ShellBlock, ToolBlock, UserBlock, gap_before
from swink_agent.tui.transcript.line import EMPTY, Line

ANSWER = """\
## What is wrong

The parser stops at the **first** comma, so `a, b` gives *one* name. ~~Two~~ One place is to blame; see
[the grammar](https://example.org/grammar#names) or https://example.org.

1. Read the names
   - split them at commas
   - [x] keep their order
2. Give them back

> A name is what
> stands between commas.

| File | Lines | What it does |
|:-----|------:|--------------|
| `names.py` | 120 | reads the names, one after another, however many of them there may be in the text |
| `parse.py` | 8 | calls it |

```python
def names(text: str) -> list[str]:
    \"\"\"The names,
    in order.\"\"\"
    return [part.strip() for part in text.split(",")]  # all of them
```

---
"""
OLD = """\
import re


def names(text):
    found = re.match("[a-z]+", text)
    return [found[0]]


def count(text):
    return len(names(text))
"""
NEW = """\
def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def count(text):
    return len(names(text))
"""


def a_call(name: str, summary: str, outcome: ToolOutcome, text: str, **details: object) -> ToolBlock:
    call = ToolBlock(name, name, summary)
    call.finish(outcome, text, is_error=outcome != ToolOutcome.RAN, seconds=1.234, details=details or None)
    return call


def a_task(prompt: str, *, is_over: bool) -> ToolBlock:
    """A call with a delegate that has made two calls, the second with a delegate of its own."""
    progress = DelegateProgress()
    spent = AssistantMessage((), usage=Usage(total=12_345), cost=Cost(total=0.0421))
    progress.feed(MessageEnd(spent), lambda name, _: (name, ""))
    progress.is_over = is_over
    read, inner, search = (
        DelegateCall("a", "read_file", "src/names.py"),
        DelegateCall("b", "research", "Where else are names split at commas, and which of these places have tests?"),
        DelegateCall("c", "search", "split"),
    )
    read.status, read.seconds = "done", 0.012
    inner.calls.append(search)
    progress.calls += [read, inner]
    if is_over:
        inner.status, inner.seconds, search.status, search.seconds = "done", 2.5, "failed", 1.0
    block = ToolBlock("t", "task", prompt)
    block.begin()
    block.show_delegate(progress)
    if is_over:
        block.finish(ToolOutcome.RAN, "In two places.", is_error=False, seconds=3.2)
    return block


def gallery() -> list[Block]:
    """The blocks, from the oldest to the newest."""
    reply = ReplyBlock()
    reply.append_thinking("The test expects two names.\n\nI look at the parser.")
    reply.append_text(ANSWER)
    reply.finish()
    thinking = ReplyBlock()
    thinking.append_thinking("Is there another place that does the same? I have to look.")
    plan = ReplyBlock(label="PLAN")
    plan.append_text("1. Rewrite `names`\n2. Run the tests")
    plan.finish()
    stopped = ReplyBlock()
    stopped.append_text("I am going to")
    stopped.finish("aborted")
    failed = ReplyBlock()
    failed.finish("error", "the provider is overloaded (529)")
    folded = [
        a_call("read_file", "src/names.py", ToolOutcome.RAN, "import re\n", path="src/names.py"),
        a_call("bash", "python -m pytest tests/test_names.py -x -q --no-header --tb=short", ToolOutcome.FAILED, "F\n1"),
        a_call("bash", "git push --force", ToolOutcome.REJECTED, "no: never with force"),
        a_call("edit_file", "src/names.py", ToolOutcome.RAN, "ok", path="src/names.py", old=OLD, new=NEW),
    ]
    for call in folded:
        call.fold()
    change = a_call("edit_file", "src/names.py", ToolOutcome.RAN, "ok", path="src/names.py", old=OLD, new=NEW)
    read = a_call("read_file", "src/names.py", ToolOutcome.RAN, NEW, path="src/names.py", first_line=9)
    running = ToolBlock("r", "bash", "python -m pytest")
    running.begin()
    running.hear("".join([f"test {number} passed\n" for number in range(12)]) + "collecting 1%\rcollecting 99%")
    shell = ShellBlock("s", "bash", "git status --short")
    shell.finish(ToolOutcome.RAN, " M src/names.py", is_error=False, seconds=0.02)
    tasks = [a_task(f"Find every use, part {number}", is_over=number > 1) for number in (1, 2, 3)]
    tasks[1].fold()
    tasks[2].open()
    return [
        NoticeBlock("Swink Agent\nlocal:small in ~/names", "welcome"),
        UserBlock("The test of names fails.\nWhy? \u4f60\u597d", images=["screen.png"]),
        reply,
        *folded,
        change,
        read,
        running,
        *tasks,
        shell,
        UserBlock("and the count, too", label="steering"),
        thinking,
        plan,
        stopped,
        failed,
        NoticeBlock("the conversation was shortened by 12 messages"),
        NoticeBlock("attempt 1 failed, the next is in 2 s", "warning"),
        NoticeBlock("the key is not valid", "error"),
    ]


def gallery_lines(width: int) -> list[Line]:
    lines: list[Line] = []
    previous: Block | None = None
    for block in gallery():
        lines += [EMPTY] * gap_before(block, previous)
        lines += block.lines(width)
        previous = block
    return lines
