"""The HTML page of a session: its content, and that no text of a session can add elements to it."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import AssistantMessage, Base64Image, Image, ToolCall, ToolResultMessage, UserMessage
from swink_agent.core.types import ToolOutcome
from swink_agent.memory import SessionInfo, export_html
from swink_agent.rendering.characters import visible

from .pages import Page
from .sessions import ATTACKS, ROLES, Notice, infected, ordinary, png

INFO = SessionInfo(id="s1")


def test_a_session_is_a_page_with_who_spoke_in_order() -> None:
    page = Page(ordinary().html())
    assert page.roles == ("user", "assistant", "assistant", "assistant", "user", "custom", "assistant")
    assert page.text("title") == "The total"
    text = page.text()
    for shown in ("/home/ann/shop", "20261114-aaaa", "line 17 was damaged", "before the picture", "529: overloaded"):
        assert shown in text
    assert "the build is green" in text


def test_calls_are_folded_with_their_results() -> None:
    html = ordinary().html()
    tools = re.findall(r'<details class="tool (\w+)"><summary>(.*?)</summary>', html)
    assert [(kind, re.sub("<[^>]*>", "", words)) for kind, words in tools] == [
        ("ok", "read_file a.py done"),
        ("bad", "bash ls | wc -l failed"),
        ("held", "bash rm -rf build no result"),
        ("ok", "edit_file a.py done"),
    ]
    first, second = html.split('<details class="tool ')[1:3]
    assert "print(1)" in first
    assert "no such file" in second
    assert "<details open" not in html


def test_a_call_gets_the_result_that_follows_its_own_reply() -> None:
    reply = [ToolCall("same", "t", {"n": "one"})]
    messages = [
        AssistantMessage(reply),
        ToolResultMessage("same", "first"),
        AssistantMessage(reply),
        ToolResultMessage("same", "second"),
        ToolResultMessage("same", "nobody's"),
    ]
    html = export_html(INFO, messages)
    blocks = html.split('<details class="tool ')[1:]
    assert ["first" in blocks[0], "second" in blocks[1], "nobody" in blocks[2]] == [True, True, True]
    assert "Result without a call" in html


@pytest.mark.table
@pytest.mark.parametrize("outcome", list(ToolOutcome))
def test_every_outcome_has_a_word(outcome: ToolOutcome) -> None:
    messages = [AssistantMessage([ToolCall("1", "t")]), ToolResultMessage("1", "x", outcome=outcome)]
    badge = re.search(r'<span class="badge">([^<]+)<', export_html(INFO, messages))
    assert badge is not None
    assert badge[1]


def test_changes_are_diffs() -> None:
    html = ordinary().html()
    assert '<span class="line del">-1\n</span><span class="line ins">+2\n</span>' in html


def test_usage_and_cost_stand_at_each_reply_and_in_total() -> None:
    html = ordinary().html()
    assert html.count("$0.0123") == 3
    assert "1,200 in · 34 out · 500 cached" in html
    assert "openai:gpt-5" in html  # another model than the session's is named where it spoke


def test_the_contents_lead_to_the_prompts() -> None:
    html = ordinary().html()
    nav = html.split("<nav")[1].split("</nav>")[0]
    assert re.findall(r'href="(#m\d+)"', nav) == ["#m1", "#m8"]
    assert 'href="#m1" aria-label="Link to message 1">#1</a>' in html
    assert "#0<" not in html
    assert "before the picture" in nav
    ids = re.findall(r'id="(m\d+)"', html)
    assert len(ids) == len(set(ids))


def test_pictures_in_the_session_are_on_the_page_and_others_are_named() -> None:
    page = Page(ordinary().html())
    assert [image["src"] for image in page.all("img")] == [f"data:image/png;base64,{png()}"]
    assert all(image["alt"] for image in page.all("img"))


@pytest.mark.table
@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("image/svg+xml", base64.b64encode(b"<svg/>").decode()),
        ("image/png", base64.b64encode(b"<svg/>" * 10).decode()),
        ("image/jpeg", png()),
        ("text/html", png()),
        ("image/png", png() + '"'),
        ("image/png", ""),
        ("image/png", "data:image/png;base64," + png()),
    ],
)
def test_pictures_that_do_not_match_their_type_are_not_shown(media_type: str, data: str) -> None:
    page = Page(export_html(INFO, [UserMessage([Image(Base64Image(media_type, data))])]))
    assert page.all("img") == []
    assert "Image, not shown" in page.text()


def test_the_policy_of_the_page_allows_its_style_and_nothing_else() -> None:
    html = ordinary().html()
    style = html.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in html
    assert html.index("Content-Security-Policy") < html.index("<title>")
    assert "url(" not in style
    assert "@import" not in style


def test_an_empty_session_is_a_page_too() -> None:
    page = Page(export_html(INFO, []))
    assert "This session has no messages" in page.text()
    assert page.text("title") == "Session s1"


# -- hostile sessions ----------------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_adds_an_element_or_a_speaker(name: str) -> None:
    html = infected(ATTACKS[name]).html()
    page = Page(html)
    assert page.roles == ROLES
    assert len(page.all("style")) == 1
    assert len(page.all("meta")) == 6
    assert [path[-1] for path, text in page.texts if "pw" in text and path[-1] in ("style", "script")] == []
    html.encode()  # no half characters


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ATTACKS)
def test_hiding_and_moving_characters_are_written_out(name: str) -> None:
    for character in set(infected(ATTACKS[name]).html()) - {"\n", "\t"}:
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"), f"{character!r} is on the page"


def test_piled_up_accents_do_not_reach_over_other_lines() -> None:
    assert "\u0301" * 3 not in infected(ATTACKS["accents"]).html()


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=50)
def test_no_text_at_all_adds_an_element(text: str) -> None:
    assert Page(infected(text).html()).roles == ROLES


MARKDOWN = st.lists(
    st.sampled_from(
        [
            *("*", "**", "_", "`", "```", "[", "](", ")", "<", ">", "\n", "- ", "1. ", "| ", "|-|", "#", "https://a.b"),
            *("~~", "\\", "&", '"', "'", "word ", "  ", "!", "<!--", "javascript:", "\t", "é", "\u202e"),
        ]
    ),
    max_size=40,
).map("".join)


@given(MARKDOWN)
@settings(max_examples=200)
def test_no_markdown_adds_an_element(text: str) -> None:
    page = Page(export_html(INFO, [UserMessage(text)]))
    assert page.roles == ("user",)


@given(st.text(st.characters(), max_size=40))
def test_characters_are_written_out_as_on_the_command_line(text: str) -> None:
    from swink_agent.rendering.escaping import safe_text

    assert visible(text) == safe_text(text)


def test_deep_values_and_values_that_are_not_json_are_described() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    html = export_html(
        INFO, [ToolResultMessage("1", "x", details=deep)], notes=[("k", {1: object(), "n": float("nan")}, 0)]
    )
    assert Page(html).roles == ("custom",)


@pytest.mark.sweep
async def test_ten_thousand_messages_are_exported_in_a_few_seconds(
    promptly: Callable[[float], AbstractContextManager[None]],
) -> None:
    messages = [Notice("x"), *ordinary().messages] * 1000
    with promptly(15):
        assert len(export_html(INFO, messages[:10_000])) > 1_000_000
