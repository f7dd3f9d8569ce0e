"""The list of things to do in an exported session: a checklist, whatever its items contain."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from swink_agent import AssistantMessage, ToolCall, ToolResultMessage
from swink_agent.memory import SessionInfo, export_html, export_markdown

from .pages import Page
from .sessions import ATTACKS

INFO = SessionInfo(id="s1")


def session(*items: tuple[str, str], is_error: bool = False) -> list[AssistantMessage | ToolResultMessage]:
    listed = [{"text": text, "status": status} for text, status in items]
    call = ToolCall("c1", "todo", {"items": listed})
    return [AssistantMessage([call]), ToolResultMessage("c1", "kept", is_error, {"todo": listed}, "todo")]


def test_it_is_a_checklist_in_markdown() -> None:
    text = export_markdown(INFO, session(("Read *it*", "done"), ("Test", "in_progress"), ("Tell", "pending")))
    assert "### Tool `todo` (done)\n\n- [x] Read \\*it\\*\n- [ ] **Test** (in progress)\n- [ ] Tell" in text
    assert '"status"' not in text


def test_it_is_a_list_on_the_page() -> None:
    html = export_html(INFO, session(("Read", "done"), ("Test", "in_progress")))
    assert '<li class="done">[x] <bdi>Read</bdi></li>' in html
    assert "1 of 2 done" in Page(html).text()


def test_a_list_that_was_refused_is_shown_as_any_call() -> None:
    assert '"status": "later"' in export_markdown(INFO, session(("x", "later"), is_error=True))


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.table
def test_an_item_adds_nothing_to_the_document(attack: str) -> None:
    messages = session((attack, "pending"), ("Read", "done"))
    page = Page(export_html(INFO, messages))
    assert page.roles == ("assistant",)
    tokens = MarkdownIt("commonmark").parse(export_markdown(INFO, messages))
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2", "h3"]
    assert not [token for token in tokens if token.type == "html_block"]
