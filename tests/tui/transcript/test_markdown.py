"""Markdown as lines: how each construct looks, with the same result however the text is split."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.rendering.cells import cell_width
from swink_agent.rendering.prose import prose_html
from swink_agent.tui.transcript.leaves import PIECE
from swink_agent.tui.transcript.line import plain
from swink_agent.tui.transcript.markdown import MarkdownStream

from .reading import copied_text, markdown_lines


def drawn(text: str, width: int = 40) -> list[str]:
    return [plain(line.spans).rstrip() for line in markdown_lines(text, width)]


def roles(text: str) -> dict[str, str]:
    """The role of every piece of a text that is drawn."""
    return {span.text: span.role for line in markdown_lines(text, 80) for span in line.spans}


def words_with_roles(text: str) -> list[tuple[str, str]]:
    spans = [span for line in markdown_lines(text, 100) for span in line.spans]
    return [(word, span.role) for span in spans for word in span.text.split()]


# -- constructs ----------------------------------------------------------------------------------------------------


def test_a_paragraph_is_wrapped_between_words_and_its_lines_are_joined() -> None:
    assert drawn("one two three\nfour five", 12) == ["one two", "three four", "five"]


def test_a_hard_break_stays_one() -> None:
    assert drawn("one  \ntwo\\\nthree") == ["one", "two", "three"]


def test_a_word_that_is_wider_than_a_row_is_broken_and_nothing_is_lost() -> None:
    rows = drawn("x" * 30 + " end", 12)
    assert "".join(rows).replace(" ", "") == "x" * 30 + "end"
    assert all(len(row) <= 12 for row in rows)


def test_wide_characters_are_broken_without_blanks() -> None:
    rows = drawn("\u6f22\u5b57" * 10, 12)
    assert all(cell_width(row) <= 12 for row in rows)
    assert "".join(rows) == "\u6f22\u5b57" * 10


def test_marks_within_a_line_become_roles() -> None:
    found = roles("a **b** *c* ~~d~~ `e` ***f***")
    assert found["b"] == "text+strong"
    assert found["c"] == "text+emphasis"
    assert found["d"] == "text+strike"
    assert found["e"] == "text+inline"
    assert set(found["f"].split("+")) == {"text", "strong", "emphasis"}


def test_marks_that_close_nothing_are_text() -> None:
    assert drawn("2 * 3 * 4 and snake_case_name and ` alone") == ["2 * 3 * 4 and snake_case_name and `", "alone"]


MARKED = (
    "**a bold phrase**",
    "*leaning words*",
    "`code of words`",
    "[the words of a link](https://a.b/c)",
    "~~old words~~",
)


@pytest.mark.parametrize("marked", MARKED)
@pytest.mark.parametrize("before", ["word " * 202, "a line of words\n" * 63, "two lines  \nof words  \n" * 44])
@pytest.mark.table
def test_marks_in_a_long_paragraph_mean_the_same_at_any_place(before: str, marked: str) -> None:
    short = words_with_roles(marked)
    for place in range(0, 40, 3):
        text = before + "x" * place + f" {marked} and more words" * 3 + "\n"
        assert [word for word in words_with_roles(text) if word[1] != "text"] == short * 3


def test_a_mark_that_nothing_closes_is_given_up_after_some_pieces() -> None:
    stream = MarkdownStream(100)
    stream.feed("one **two " + "word " * (5 * PIECE // 5))
    stream.update()
    assert stream.final > 3 * PIECE // 100


def test_a_tick_behind_a_backslash_begins_no_code() -> None:
    assert drawn("\\``") == ["``"]


def test_a_heading_has_its_level_and_no_marks() -> None:
    assert drawn("## Title ##\ntext") == ["Title", "text"]
    assert roles("## Title")["Title"] == "text+heading.2"


def test_a_line_over_a_row_of_equals_signs_is_a_heading() -> None:
    assert drawn("A *title*\n=====\ntext\n\ntwo\nlines\n==") == ["A title", "text", "", "two lines =="]
    assert roles("A title\n=")["A title"] == "text+heading.1"


def test_a_line_over_a_row_of_dashes_is_a_heading_of_the_second_level() -> None:
    assert drawn("A title\n---\ntext\n\ntwo\nlines\n---") == ["A title", "text", "", "two lines", "\u2500" * 40]
    assert roles("A title\n--")["A title"] == "text+heading.2"
    assert drawn("> words\n---")[1] == "\u2500" * 40


def test_a_link_leads_to_the_address_that_an_earlier_line_defines() -> None:
    text = "[d]: https://d.org 'D'\n[X]: <https://x.org>\n\n[the *docs*][D], [x], [x][] and a[1][2]"
    assert drawn(text, 100) == [
        "[d]: https://d.org 'D'",
        "[X]: https://x.org",
        "",
        "the docs (https://d.org), x (https://x.org), x (https://x.org) and a[1][2]",
    ]
    links = {span.link for line in markdown_lines(text, 100) for span in line.spans if span.text in ("docs", "x")}
    assert links == {"https://d.org", "https://x.org"}


def test_a_later_definition_is_a_row_and_the_link_is_text() -> None:
    text = "see [the docs][d]\n\n[d]: https://d.org\n[n]: no address"
    assert drawn(text) == ["see [the docs][d]", "", "[d]: https://d.org", "[n]: no address"]


def test_entities_are_the_characters_unless_those_would_be_hidden() -> None:
    assert drawn("a &lt;b&gt; &amp;&nbsp;c `&lt;` &#8238; &notit;") == ["a <b> & c &lt; &#8238; &notit;"]


def test_lists_are_nested_and_wrapped_behind_their_marks() -> None:
    text = "- one two three\n  - deep\n    1. deeper\n- [x] done\n- [ ] open"
    expected = ["\u2022 one two", "  three", "  \u25e6 deep", "    1. deeper", "\u2611 done", "\u2610 open"]
    assert drawn(text, 13) == expected


def test_an_item_may_hold_paragraphs_and_code() -> None:
    text = "1. First\n\n   more\n2. Second\n   ```\n   x\n   ```\n\nafter"
    assert drawn(text) == ["1. First", "", "   more", "2. Second", "   \u258e x", "", "after"]


def test_a_quote_has_a_bar() -> None:
    assert drawn("> one\n> two\n>\n> three") == ["\u258e one two", "\u258e", "\u258e three"]


def test_code_keeps_its_lines_and_names_its_language() -> None:
    assert drawn("```python\ndef f():\n    return 1\n\n```") == [
        "\u258e python",
        "\u258e def f():",
        "\u258e     return 1",
        "\u258e",
    ]


def test_marks_that_are_indented_like_code_do_not_end_a_block_here_as_on_a_page() -> None:
    text = "```\none\n    ```\ntwo\n   ```\nafter"
    assert drawn(text) == ["\u258e one", "\u258e     ```", "\u258e two", "", "after"]
    assert "one\n    ```\ntwo" in prose_html(text)


def test_indented_code_goes_over_an_empty_line() -> None:
    assert drawn("    one\n\n    two\n\nthree") == ["\u258e one", "\u258e", "\u258e two", "", "three"]


def test_a_line_of_code_continues_what_the_line_before_began() -> None:
    lines = markdown_lines('```python\nx = """one\ntwo"""\ny = 1\n```', 40)
    assert lines[2].spans[1].text == 'two"""'
    assert lines[2].spans[1].role == "code+code.string"
    assert lines[3].spans[1] == ("y = ", "code", "")


def test_a_table_is_aligned() -> None:
    assert drawn("| a | bb |\n|:--|---:|\n| x | 1 |\n| long | 22 |") == [
        "a    \u2502 bb",
        "\u2500\u2500\u2500\u2500\u2500\u253c\u2500\u2500\u2500",
        "x    \u2502  1",
        "long \u2502 22",
    ]


def test_a_table_that_is_too_wide_is_wrapped_in_its_cells() -> None:
    rows = drawn("| name | text |\n|--|--|\n| key | " + "word " * 12 + "|", 30)
    assert all(len(row) <= 30 for row in rows)
    assert " ".join(rows).count("word") == 12


def test_a_break_in_a_cell_breaks_the_line() -> None:
    assert drawn("| a | b |\n|---|---|\n| one<br>two | x |") == [
        "a   \u2502 b",
        "\u2500\u2500\u2500\u2500\u253c\u2500\u2500",
        "one \u2502 x",
        "two \u2502",
    ]
    assert drawn("one<br/>two") == ["one", "two"]


def test_a_table_with_too_many_columns_becomes_records() -> None:
    head = " | ".join([f"c{number}" for number in range(12)])
    row = " | ".join([f"v{number}" for number in range(12)])
    rows = drawn(f"{head}\n{'|'.join(['---'] * 12)}\n{row}", 30)
    assert rows[0] == "c0: v0"
    assert rows[11] == "c11: v11"


def test_a_link_shows_where_it_leads() -> None:
    (line,) = markdown_lines("see [here](https://example.org/a) now", 80)
    assert plain(line.spans) == "see here (https://example.org/a) now"
    assert {span.link for span in line.spans if span.text == "here"} == {"https://example.org/a"}


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", "mailto:a@b.c", "x"])
def test_no_other_address_can_be_followed(address: str) -> None:
    assert {span.link for line in markdown_lines(f"[here]({address}) <{address}>", 80) for span in line.spans} == {""}


def test_a_bare_address_ends_before_the_full_stop() -> None:
    found = [span for line in markdown_lines("(see https://example.org/a_(b)).", 80) for span in line.spans]
    assert [span.link for span in found if span.link] == ["https://example.org/a_(b)"]


def test_terminal_escapes_and_hidden_characters_are_shown() -> None:
    text = "".join(drawn("a\x1b[31mred \u202e **b\u200b**\n```\n\x1b]0;title\x07\n```"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\u{1b}[31mred" in text
    assert "\\u{202e}" in text


def test_copying_gives_code_without_bars_and_paragraphs_as_one_line() -> None:
    text = "one two three four\n\nfive\n\n```py\nx = 1\n  y\n```\n\n- item of a list\n- b"
    copied = "one two three four\n\nfive\n\nx = 1\n  y\n\n- item of a list\n- b"
    assert copied_text(markdown_lines(text, 12)) == copied
    assert copied_text(markdown_lines(text, 60)) == copied


# -- however it comes in -------------------------------------------------------------------------------------------

PARTS = [
    "word ", "word", " ", "\n", "\n\n", "**", "*", "`", "``", "```", "```py\n", "\n```\n", "~~~\n", "- ", "  - ", "1. ",
    "> ", ">", "# ", "| a | b |\n", "|--|:-:|\n", "| x ", "|", "---\n", "    ", "[x](https://a.b/c)", "[", "](", ")",
    "\\", "  \n",
    "https://x.y/z", "[a]: https://a.b\n", "[w][a]",
    "\t", "\r\n", "\r", "\u6f22\u5b57", "e\u0301", "\U0001f469\u200d\U0001f4bb", "\x1b[1m",
    '"""', "/*", "*/", "[ ] ", "!", "<br>", "x" * 50, "_", "~~", "===\n", "&lt;",
]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@settings(max_examples=300)
@given(texts, st.lists(st.integers(0, 400), max_size=12), st.sampled_from([8, 17, 40, 130]))
def test_it_makes_no_difference_how_a_text_is_cut(text: str, cuts: list[int], width: int) -> None:
    stream = MarkdownStream(width)
    at = 0
    before: list[object] = []
    for cut in sorted({min(cut, len(text)) for cut in [*cuts, len(text)]}):
        stream.feed(text[at:cut])
        lines = stream.update()
        assert lines[: stream.first_change] == before[: stream.first_change]
        assert lines == markdown_lines(text[:cut], width)
        before, at = list(lines), cut


@settings(max_examples=100)
@given(texts, st.integers(8, 60))
def test_no_row_is_wider_than_the_window(text: str, width: int) -> None:
    for line in markdown_lines(text, max(width, 24)):
        assert cell_width(plain(line.spans)) <= max(width, 24)


@pytest.mark.parametrize("start", ["", "- ", "> ", "# ", "```\n", "| a | b |\n|---|---|\n| ", "    "])
@pytest.mark.parametrize("unit", ["some words and **more** of them ", "x", "\u6f22", "word\n"])
@pytest.mark.table
def test_a_very_long_line_is_the_same_in_small_deltas(start: str, unit: str) -> None:
    text = start + unit * (3 * PIECE // len(unit))
    stream = MarkdownStream(60)
    for at in range(0, len(text), 97):
        stream.feed(text[at : at + 97])
        if at % 970 == 0:
            stream.update()
    assert stream.update() == markdown_lines(text, 60)


def cost(text: str, delta: int = 100) -> float:
    """Seconds of processor time for a text that comes in deltas, each of which is drawn."""
    best = 1e9
    for _ in range(2):
        started = time.process_time()
        stream = MarkdownStream(100)
        for at in range(0, len(text), delta):
            stream.feed(text[at : at + delta])
            stream.update()
        best = min(best, time.process_time() - started)
    return best


LONG = {
    "a paragraph": "some words of a paragraph, **bold** and `code` ",
    "one word": "x",
    "code": "```python\n" + "x = call(1, 'two')  # three\n" * 400,
    "a list": "- an item of a list\n  - one beneath\n",
    "a table": "| a | b |\n|---|---|\n" + "| one | two three |\n" * 400,
    "open emphasis": "*a **b ",
    "open brackets": "[a](b [",
    "ticks": "` `` ``` ",
    "quotes": "> > > > > > > > > a\n",
    "definitions": "[a]: https://a.b 't'\n[b [a] [a][",
    "addresses": "https://a.b/" + ")" * 60 + " ",
    "odd characters": "a\u200b\u0301\u0301\u0301 ",
}


@pytest.mark.sweep
@pytest.mark.parametrize("unit", LONG.values(), ids=LONG.keys())
def test_twice_the_text_takes_about_twice_the_time(unit: str) -> None:
    text = unit * (20_000 // len(unit) + 1)
    # The better of two: the machine may change its speed meanwhile.
    once, twice = (min(cost(some), cost(some)) for some in (text[:20_000], (text + text)[:40_000]))
    assert twice < once * 3.2 + 0.2, f"{once:.3f} s, and {twice:.3f} s for twice as much"
