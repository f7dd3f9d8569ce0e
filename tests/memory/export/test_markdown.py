"""The Markdown of a session, as another program reads it."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from swink_agent import AssistantMessage, Text, Thinking, UserMessage
from swink_agent.memory import SessionInfo, export_markdown
from swink_agent.rendering.tame import code_span, fenced, tamed

from .sessions import ATTACKS, Exported, infected, ordinary

INFO = SessionInfo(id="s1")


def written(exported: Exported) -> str:
    return export_markdown(exported.info, exported.messages, labels=exported.labels, notes=exported.notes)


def read(text: str) -> list[Token]:
    """The document as CommonMark with tables has it, what stands in lines included."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [inner for token in tokens for inner in (token, *(token.children or ()))]


def headings(text: str) -> list[tuple[str, str]]:
    """Our own headings: those of the three upper levels."""
    tokens = read(text)
    return [
        (token.tag, tokens[place + 1].content)
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag in ("h1", "h2", "h3")
    ]


def test_a_session_reads_in_order() -> None:
    text = written(ordinary())
    assert headings(text) == [
        ("h1", "The total"),
        ("h2", "User"),
        ("h2", "Assistant"),
        ("h3", "Tool `read_file` (done)"),
        ("h3", "Tool `bash` (failed)"),
        ("h3", "Tool `bash` (no result)"),
        ("h2", "Assistant"),
        ("h3", "Tool `edit_file` (done)"),
        ("h2", "Assistant"),
        ("h2", "User"),
        ("h2", "Application"),
        ("h2", "Assistant"),
        ("h2", "Note `deploy`"),
    ]
    for shown in (
        "-1\n+2",
        "Fix the *total*, please.",
        "$0.0123",
        "529: overloaded",
        "[image, image/png, ",
        "20261114-aaaa",
    ):
        assert shown in text
    assert "```python\ndef f(): return 'a'  # now\n```" in text


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_adds_a_heading_of_ours_or_html(name: str) -> None:
    plain, text = written(infected("x")), written(infected(ATTACKS[name][:900]))  # the reader is slow at nesting
    assert [tag for tag, _ in headings(text)] == [tag for tag, _ in headings(plain)]
    assert [token.content for token in read(text) if token.type.startswith("html")] == []
    text.encode()


PIECES = st.sampled_from(
    [
        *(
            "# User\n",
            "## User\n",
            "User\n---\n",
            "User\n===\n",
            "- # User\n",
            "> # User\n",
            "```\n",
            "~~~\n",
            "  ```\n",
        ),
        *("~~~ `a`\n", "``` a\n", "`", "``", "word ", "\n", "\n\n", "- a\n", "1. a\n", "   ", "\t", "<h2>User</h2>\n"),
        *(
            "<!--\n",
            "<details>",
            "[a]: b\n",
            "    # code\n",
            "\\",
            "> ",
            "- ```\n",
            "&lt;",
            "a | b\n-|-\n",
            "---\n",
            "* ",
        ),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join), st.lists(PIECES, max_size=6).map("".join))
@settings(max_examples=200)
@example("```\n\t```\n", "")
@example("  ```\n \t```\n", "")
@example("~~~ `a`\n", "")
@example("```\n  ```\n", "")
def test_no_text_leaves_its_place(said: str, thought: str) -> None:
    messages = [UserMessage(said), AssistantMessage([Thinking(thought), Text(said)]), UserMessage("the end")]
    text = export_markdown(INFO, messages)
    assert headings(text) == [("h1", "Session s1"), ("h2", "User"), ("h2", "Assistant"), ("h2", "User")]
    assert [token.content for token in read(text) if token.type.startswith("html")] == []


def test_ordinary_markdown_stays_as_it_is() -> None:
    text = "Look at `Vec<T>`:\n\n1. One\n   ```sh\n   # list\n   ls <dir>\n   ```\n2. Two"
    text += "\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    assert tamed(text) == text


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("# A\n### B", "#### A\n###### B"),
        ("a <b> c", "a &lt;b> c"),
        ("1 < 2", "1 < 2"),
        ("User\n---", "User\n\n---"),
        ("[a]: https://b", "\\[a]: https://b"),
        ("```\nopen", "````markdown\n```\nopen\n````"),
        ("a ` b", "``markdown\na ` b\n```".replace("``m", "```m")),
    ],
)
def test_texts_cannot_pass_for_something_else(text: str, made: str) -> None:
    assert tamed(text) == made


_TARGETS = [
    *("javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "<javascript:alert(1)>", "<java script:x>"),
    *("&#106;avascript:alert(1)", "javascript&colon;alert(1)", "java\\script\\:alert(1)", "\njavascript:alert(1)"),
    *("data:text/html,<script>", "vbscript:x", "file:///etc/passwd", "\t<data:text/html;base64,PHNjcmlwdD4=> "),
]


_REFERENCES = ["[a][b]\n\n[b]: {}", "[a][b]\n\n- [b]: {}", "[a][b c]\n\n[b\nc]: {}", "[a][b\\]]\n\n> 1. [b\\]]: {}"]


@pytest.mark.table
@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("form", ["[a]({})", "![a]({})", "[a `b]`]({})", "> - [a]({} 'title')", *_REFERENCES])
def test_no_link_leads_to_a_program(form: str, target: str) -> None:
    """Not every reader of Markdown looks at where a link leads."""
    reader = MarkdownIt("commonmark")
    reader.validateLink = lambda url: True
    document = reader.parse(export_markdown(INFO, [UserMessage(f"{form.format(target)} {form.format(target)}")]))
    inside = [child for token in document for child in token.children or ()]
    assert [child.attrs for child in inside if child.type in ("link_open", "image")] == []


@pytest.mark.table
@pytest.mark.parametrize(
    "target",
    [
        *("https://a.b/c_(d)?e=f&g", "mailto:a@b.c", "#part", "docs/a.md", "../a.md 'title'", "a.png"),
        *("/a?b=c&d=e", "a_(b).md", ""),
    ],
)
def test_other_links_stay(target: str) -> None:
    text = f"[a]({target}) ![b]({target})"
    assert tamed(text) == text


@given(st.text("`a \n", max_size=30))
def test_fences_and_spans_hold_whatever_is_in_them(text: str) -> None:
    tokens = read(fenced(text))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content.rstrip("\n") == text.rstrip("\n")
    assert [token.type for token in read(code_span(text)) if token.type == "code_inline"] == ["code_inline"]


@pytest.mark.parametrize(
    "piece",
    [
        "`a` ",
        "` ``",
        "`a``",
        "# ",
        "> ",
        "- ",
        "<a",
        "```\n",
        "[a]: ",
        "\n",
        "1. # ",
        "    ",
        "](a",
        "](",
        "]: a",
        "](&a",
    ],
)
@pytest.mark.table
def test_no_text_takes_longer_than_its_length(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    start = time.process_time()
    tamed(text)
    assert time.process_time() - start < 5
