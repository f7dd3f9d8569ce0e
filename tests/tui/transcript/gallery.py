"""A conversation with one of everything, for pictures."""

from __future__ import annotations

from swink_agent import ToolOutcome
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
    return [
        NoticeBlock("Swink Agent\nlocal:small in ~/names", "welcome"),
        UserBlock("The test of names fails.\nWhy? \u4f60\u597d", images=["screen.png"]),
        reply,
        *folded,
        change,
        read,
        running,
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
