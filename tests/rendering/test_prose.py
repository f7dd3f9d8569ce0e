"""Text of people and models as HTML: the subset of Markdown, highlighting, and the time they take."""

from __future__ import annotations

import re
import time
from html import escape
from typing import Any

import pytest

from swink_agent import AssistantMessage, Text, UserMessage
from swink_agent.memory import SessionInfo
from swink_agent.memory.export import export_html, export_markdown
from swink_agent.rendering.highlight import LONGEST, code_html, diff_html, highlighted, parts
from swink_agent.rendering.languages import FAMILIES, family, language
from swink_agent.rendering.prose import prose_html


def shape(text: str) -> str:
    """The HTML without what every element has."""
    html = re.sub(r' (?:dir="auto"|tabindex="0"|rel="[^"]*"|title="[^"]*")', "", prose_html(text))
    return html.replace("\n", "")


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
        ("one\\\ntwo", "<p>one<br>two</p>"),
        ("a &lt;b&gt; &amp;&nbsp;&#246; `&lt;`", "<p>a &lt;b&gt; &amp; ö <code>&amp;lt;</code></p>"),
        ("&#8238;&notit;&#10;&#769;", "<p>&amp;#8238;&amp;notit;&amp;#10;&amp;#769;</p>"),
        ("A *title*\n====\ntext", "<h3>A <em>title</em></h3><p>text</p>"),
        ("two\nlines\n===", "<p>two<br>lines<br>===</p>"),
        ("A *title*\n---\ntext", "<h4>A <em>title</em></h4><p>text</p>"),
        ("two\nlines\n---", "<p>two<br>lines</p><hr>"),
        (
            "[a *b*][ c ], [C], [c][] and x[1][2]\n\n[c]: https://x.y 't'",
            '<p><a href="https://x.y">a <em>b</em></a>, <a href="https://x.y">C</a>, <a href="https://x.y">c</a>'
            ' and x[1][2]</p><p>[c]: <a href="https://x.y">https://x.y</a> &#x27;t&#x27;</p>',
        ),
        (
            "[a] [b]\n\n[a]: javascript:x\n```\n[b]: https://x.y\n```",
            "<p>[a] [b]</p><p>[a]: javascript:x</p><pre><code>[b]: https://x.y</code></pre>",
        ),
        (
            "[good.com][a]\n\n[a]: https://evil.com",
            '<p><a href="https://evil.com">good.com</a> <span class="quiet">(evil.com)</span></p>'
            '<p>[a]: <a href="https://evil.com">https://evil.com</a></p>',
        ),
        ("# A `b`\n## C ##", "<h3>A <code>b</code></h3><h4>C</h4>"),
        (
            "*a* __d__ ~~e~~ ***f***",
            "<p><em>a</em> <strong>d</strong> <del>e</del> <em><strong>f</strong></em></p>",
        ),
        ("snake_case_name 2 * 3 * 4 **open", "<p>snake_case_name 2 * 3 * 4 **open</p>"),
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("*a **b* c**", "<p><em>a **b</em> c**</p>"),
        ("``a ` b``", "<p><code>a ` b</code></p>"),
        ("`*a*` \\*b\\*", "<p><code>*a*</code> *b*</p>"),
        ("[a *b*](https://x.y/z)", '<p><a href="https://x.y/z">a <em>b</em></a></p>'),
        ('[a](https://x.y/(z) "t")', '<p><a href="https://x.y/(z)">a</a></p>'),
        (
            "[https://good.com/a](https://evil.com/good.com)",
            '<p><a href="https://evil.com/good.com">https://good.com/a</a> <span class="quiet">(evil.com)</span></p>',
        ),
        (
            "[good.com](https://good.com@evil.com/)",
            '<p><a href="https://good.com@evil.com/">good.com</a> <span class="quiet">(evil.com)</span></p>',
        ),
        ("[www.x.yz](https://x.yz:80/a)", '<p><a href="https://x.yz:80/a">www.x.yz</a></p>'),
        ("see https://x.y/z.", '<p>see <a href="https://x.y/z">https://x.y/z</a>.</p>'),
        ("(https://x.y/a_(b))", '<p>(<a href="https://x.y/a_(b)">https://x.y/a_(b)</a>)</p>'),
        ("<mailto:a@b.c>", '<p><a href="mailto:a@b.c">mailto:a@b.c</a></p>'),
        ("[a](javascript:x) [b](file:///etc) [c](//d.e)", "<p>[a](javascript:x) [b](file:///etc) [c](//d.e)</p>"),
        ("![alt](https://x.y/i.png)", '<p><a href="https://x.y/i.png">image: alt</a></p>'),
        ("- a\n- b\n  - c\n\nd", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul><p>d</p>"),
        ("3. a\n4. b", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'),
        ("- [x] a\n- [ ] b", "<ul><li><p>☑ a</p></li><li><p>☐ b</p></li></ul>"),
        (
            "1. a\n   ```sh\n   ls\n   ```\n2. b",
            '<ol><li><p>a</p><pre data-language="sh"><code>ls</code></pre></li><li><p>b</p></li></ol>',
        ),
        ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("```\n<b>\n", "<pre><code>&lt;b&gt;</code></pre>"),
        ("<b>bold</b> &amp;", "<p>&lt;b&gt;bold&lt;/b&gt; &amp;</p>"),
    ],
)
def test_markdown(text: str, html: str) -> None:
    assert shape(text) == html


@pytest.mark.table
@pytest.mark.parametrize(
    ("words", "address"),
    [
        *[
            (words, "https://evil.com/")
            for words in (
                *("**good.com**", "`good.com`", "good.com.", "see good.com", "(good.com)", "good\\.com", "goo*d*.com"),
                *("//good.com", "ftp://good.com/x", "good.com, evil.com", "192.168.0.1", "a@good.com"),
            )
        ],
        ("good.com", "https://evil.com//good.com/"),
        ("good.com", "https://evil.com/?to=//good.com"),
        ("good.com", "https://evil.com#//good.com"),
        ("good.com", "mailto:good.com@evil.com?cc=a@good.com"),
    ],
)
def test_a_link_that_names_another_host_shows_its_own(words: str, address: str) -> None:
    assert shape(f"[{words}]({address})").endswith('</a> <span class="quiet">(evil.com)</span></p>')


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("good.com", "https://GOOD.com/"),
        ("see **www.good.com/a/b.py**", "http://good.com:8080/"),
        ("mail a@good.com", "mailto:a@good.com?subject=x"),
        ("version 1.2.3, e.g. this", "https://good.com"),
    ],
)
def test_a_link_that_says_where_it_leads_is_left_alone(words: str, address: str) -> None:
    assert "quiet" not in shape(f"[{words}]({address})")


def test_tables() -> None:
    html = shape("| a | b |\n|---|--:|\n| `x|y` | 1 |\n| \\| | 2 |")
    assert '<th>a</th><th class="right">b</th>' in html
    assert html.count("<tr>") == 3
    assert "<td>|</td>" in html


def test_code_is_highlighted() -> None:
    html = highlighted("def f(x):  # why\n    return 'a' + 1.5", "python")
    assert html == (
        '<span class="k">def</span> <span class="f">f</span>(x):  <span class="c"># why</span>\n'
        '    <span class="k">return</span> <span class="s">&#x27;a&#x27;</span> + <span class="n">1.5</span>'
    )


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "code", "marked"),
    [
        ("rs", 'fn main() { let s = "x"; } // c', ["fn", "main", "let", "&quot;x&quot;", "// c"]),
        ("tsx", "const a = `b\n${c}` /* d */", ["const", "`b\n${c}`", "/* d */"]),
        ("bash", 'echo "$HOME" $USER # c', ["echo", "&quot;$HOME&quot;", "$USER", "# c"]),
        ("json", '{"a": [1, true, "b"]}', ["&quot;a&quot;", "1", "true", "&quot;b&quot;"]),
        ("yaml", "a: 1\nb:\n  - c: 'd' # e", ["a", "1", "b", "  - c", "&#x27;d&#x27;", "# e"]),
        ("toml", '[x]\na = "b"', ["[x]", "a ", "&quot;b&quot;"]),
        ("SQL", "SELECT 'a' FROM t -- c", ["SELECT", "&#x27;a&#x27;", "FROM", "-- c"]),
        (
            "html",
            '<a href="x">t</a> <!-- c -->',
            ["&lt;a", "href", "&quot;x&quot;", "&gt;", "&lt;/a", "&gt;", "&lt;!-- c --&gt;"],
        ),
        ("css", "a { color: #fff; } /* c */", ["color", "#fff", "/* c */"]),
        ("rb", "def a; @b = :c end # d", ["def", "@b", ":c", "end", "# d"]),
    ],
)
def test_a_dozen_families_of_languages_are_told_apart(name: str, code: str, marked: list[str]) -> None:
    html = highlighted(code, family(name))
    found = re.findall(r'<span class="\w">(.*?)</span>', html, re.DOTALL)
    assert [part.strip() for part in found] == [part.strip() for part in marked]
    assert re.sub(r"</?span[^>]*>", "", html) == escape(code)


def test_an_unknown_language_and_a_very_long_text_stay_plain() -> None:
    assert "<span" not in code_html("def f(): 1", "klingon")
    assert "<span" not in highlighted("def " * LONGEST, "python")


def test_diffs_are_coloured_wherever_they_come_from() -> None:
    assert 'class="line ins">+b' in code_html("--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b")
    assert 'class="line ins">+b' in prose_html("```diff\n+b\n```")
    assert 'class="line del">-a' in diff_html("a\n", "b\n")


PIECES = [
    *("*", "**a ", "***a", "_a_", "[", "](", "](a)", "[a](", "[](](a)", "![", "`", "``` ", "```\n", "> ", "- ", "- - "),
    *(
        "|",
        "|-|\n",
        "#",
        "<https://a",
        "https://)",
        "\\",
        "~~",
        "1. ",
        "- a\n ",
        "\t",
        "&",
        "((",
        "<!--",
        "a\n",
        "[a]: ",
        "[a]: https://a.b\n",
        "[a]: https://a.b '",
        "[a][a",
    ),
    *("- a\n\n", " ", "\n", "* * ", "a|b\n-|-\n", "\u0301", "é*"),
]
CODE = [
    *("'", '"', '"""', "/*", "<!--", "#", "\\", "0x", "1.", "1e", "a", "a:", "a=", "a-", "-a", "- ", "${", "@", "--"),
    *("//", "`", "= ", "[", "\n", "\n-", "\na ", " ", "\n ", "'\\", "<a", ":", "/* *", '" ', "[\n", "\n\t#", '"a" '),
]


def takes_less_than(limit: float, made: object, *arguments: str) -> bool:
    """Whether it does at one of three tries: a machine may be busy, what goes over a text again and again always is."""
    assert callable(made)
    for _ in range(3):
        start = time.perf_counter()
        made(*arguments)
        if time.perf_counter() - start < limit:
            return True
    return False


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("piece", PIECES)
def test_no_markdown_takes_longer_than_its_length(piece: str) -> None:
    assert takes_less_than(3, prose_html, (piece * 60_000)[:60_000])


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_no_code_takes_longer_than_its_length(name: str) -> None:
    assert language(name) is not None
    for piece in CODE:
        assert takes_less_than(1, highlighted, (piece * 12_000)[:12_000], name), piece


@pytest.mark.parametrize("kind", ["python", "", "no such language", "json"])
def test_the_parts_of_a_text_are_the_whole_text(kind: str) -> None:
    text = 'def f(x):\n    return "a" + str(12)  # done\n'
    assert "".join([piece for _, piece in parts(text, kind)]) == text


def test_parts_say_what_they_are() -> None:
    styled = [piece for piece in parts('def f(): return "a" # b', "python") if piece[0]]
    assert styled == [("k", "def"), ("f", "f"), ("k", "return"), ("s", '"a"'), ("c", "# b")]


HOSTILE = {
    "a long row of dashes under a heading": ("|a|\n", "-", "x"),
    "a long row of columns": ("|a|\n", "|-", "x"),
    "blanks": ("- - ", " ", "x"),
    **{
        f"many {piece!r}": ("a\n", piece, "x")
        for piece in ("> ", "`", "*", "_", "[", "](", "<a", "\\", "1. ", "\t", "=")
    },
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("write", [export_html, export_markdown])
def test_a_long_text_takes_no_longer_than_its_length_explains(write: Any, hostile: str) -> None:
    """Four times the text takes about four times as long; quadratic time would be sixteen."""
    before, piece, after = HOSTILE[hostile]

    def seconds(size: int) -> float:
        text = before + (piece * size)[:size] + after
        start = time.process_time()
        write(SessionInfo(id="x"), [UserMessage(text), AssistantMessage([Text(text)])])
        return time.process_time() - start

    seconds(1000)
    small = min(seconds(15_000) for _ in range(2))
    large = min(seconds(60_000) for _ in range(2))
    assert large < 0.1 or large < 9 * small + 0.05, (small, large)
