"""What a person sees before saying yes: no text can hide, move or forge anything."""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import Any

import pytest

from swink_agent import ProposedCall
from swink_agent.approvals.display import CallLine, call_lines, render_request, safe_display
from swink_agent.rendering.escaping import display_warnings, safe_line, safe_text


def request(name: str = "bash", /, **arguments: Any) -> ProposedCall:
    return ProposedCall("call-1", name, arguments)


# -- characters ----------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la", "ls -la"),
        ("", ""),
        ("été 日本 😀", "été 日本 😀"),
        ("a\nb", "a⏎b"),
        ("a⏎b", "a\\u{23ce}b"),
        ("a\r\nb", "a\\u{d}⏎b"),
        ("a\tb", "a⇥b"),
        ("a⇥b", "a\\u{21e5}b"),
        ("\x1b[2K\x1b[1Als", "\\u{1b}[2K\\u{1b}[1Als"),
        ("rm\x08\x08ls", "rm\\u{8}\\u{8}ls"),
        ("\x9b31m", "\\u{9b}31m"),
        ("a\u202egnp.exe", "a\\u{202e}gnp.exe"),
        ("a\u2066b\u2069", "a\\u{2066}b\\u{2069}"),
        ("a\u200bb\u200d\ufeff", "a\\u{200b}b\\u{200d}\\u{feff}"),
        ("a\u00a0b\u3000c", "a\\u{a0}b\\u{3000}c"),
        ("a\u00adb\u2028c", "a\\u{ad}b\\u{2028}c"),
        ("a\U000e0041\U000e0042", "a\\u{e0041}\\u{e0042}"),
        ("a\u3164b\u2800c\ufe0f", "a\\u{3164}b\\u{2800}c\\u{fe0f}"),
        ("a\ud800b\ue000", "a\\u{d800}b\\u{e000}"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 4, "e\u0301\u0301\\u{301}\\u{301}"),
        ("\u0301a \u0301", "\\u{301}a \\u{301}"),
        ("ls" + " " * 300 + "; rm x", "ls [300 spaces] ; rm x"),
        ("a    b", "a    b"),
        ("a" + " " * 20, "a [20 spaces] "),
    ],
)
def test_invisible_characters_are_spelt_out(text: str, shown: str) -> None:
    assert safe_display(text) == shown


# ruff: noqa: RUF001 - letters of all kinds
ORDINARY = [
    "👩\u200d💻 ❤\ufe0f 👍🏽 🏳\ufe0f\u200d🌈 👨\u200d👩\u200d👧\u200d👦 1\ufe0f\u20e3 🇫🇷 ☎\ufe0f \U0001fae8",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "日本語のテキスト\u3000です。葛\U000e0100城 한국어 中文",
    "مرحبا بالعالم مُحَمَّد می\u200cخواهم",
    "שָׁלוֹם",
    "क्\u200dष हिन्दी မြန်မာ ไทยน้ำ",
    "cafe\u0301 Vie\u0323\u0302t",
    "naïve straße Ελληνικά Русский",
    "Hawaiʻi пʼять Việt Nam Łódź şıĸ əlaqə ɓɗɛɔ ŋa µs №",
    "हिन्दी में APIको ใช้Pythonได้ ภาษาไทย Δt λx 5μs",
    "ქართული հայերեն አማርኛ ਪੰਜਾਬੀ ಕನ್ನಡ ខ្មែរ བོད་ ދިވެހި ﾊﾝｶｸ ㄅㄆ ꀀꀁ",
]
"""Writing as people do it, with the invisible characters that belong to it."""


@pytest.mark.table
@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_writing_is_shown_as_it_is(text: str) -> None:
    assert safe_display(text) == text
    assert safe_line(text) == text
    assert safe_text(text) == text
    assert display_warnings(text) == ()


def test_no_character_that_draws_nothing_by_its_name_is_shown_as_it_is() -> None:
    nothing = re.compile(r"\b(FILLER|JOINER|BLANK|NULL|INHERENT|INVISIBLE|SELECTOR(-\d+)?|ZERO WIDTH)\b")
    drawn = re.compile("SYMBOL FOR NULL|BLANK SYMBOL|GAP FILLER|LINE FILLER")
    named = {character: unicodedata.name(character, "") for character in map(chr, range(sys.maxunicode + 1))}
    hidden = [character for character, name in named.items() if nothing.search(name) and not drawn.search(name)]
    assert {"\U0001d159", "\U0001107f", "\U00016fe4"} < set(hidden)
    assert [named[character] for character in hidden if safe_display(character) == character] == []


@pytest.mark.table
@pytest.mark.parametrize(
    "text",
    [
        "a\u200db",  # a joiner between letters that never join
        "a\ufe0f",
        "rm\u200c -rf",
        "💻\u200d",  # with nothing to join
        "ls\u3000-l",
        "\U0001f3f4\U000e0072\U000e006d\U000e007f",  # a flag that spells something
        "字\U000e0100\U000e0101",
        "\u200fabc",
        "א\u202eב",
        "\u0301",
        "ש" + "\u05b8" * 5,
    ],
)
def test_the_same_characters_elsewhere_are_spelt_out(text: str) -> None:
    assert "\\u{" in safe_display(text)
    assert "\\u{" in safe_line(text)
    assert "\\u{" in safe_text(text) or "\u3000" in text


def test_lines_of_files_keep_their_indentation_and_a_text_its_lines() -> None:
    assert safe_line("\tif x:\t# so") == "    if x:   # so"
    assert safe_line(" " * 24 + "return ⏎") == " " * 24 + "return ⏎"
    assert safe_line("x" + " " * 300 + "; rm") == "x [300 spaces] ; rm"
    assert safe_text("a\r\nb\tc\u00a0d\n\n\x0be\x85f\u2028g\rh") == (
        "a\nb\tc\u00a0d\n\n\\u{b}e\\u{85}f\\u{2028}g\\u{d}h"
    )


def test_line_ends_of_windows_cause_no_warning() -> None:
    assert display_warnings("a\r\nb\r\n") == ()
    shown = render_request(request("write_file", path="x", content="a\r\nb\r\n"))
    assert shown.split("\n") == ["write_file x", "+ a", "+ b", "  its lines end in CRLF"]
    mixed = render_request(request("write_file", path="x", content="a\r\nb\n"))
    assert mixed.split("\n") == ["write_file x", "+ a\\u{d}", "+ b"]
    command = render_request(request("bash", command="a\r\n"), command="command")
    assert command.split("\n") == ["bash", "│ a\\u{d}"], "in a command it is not what it seems"


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    text = "head" + "x" * 10_000 + "tail"
    shown = safe_display(text, 100)
    assert shown == f"head{'x' * 56} … [9,908 of 10,008 characters not shown] … {'x' * 36}tail"
    assert safe_display(text, None) == text


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("git status", ()),
        ("a\nb\tc", ()),
        ("été, straße, 日本語, 😀", ()),
        ("echo 'привет мир'", ()),
        ("echo 'рост и всё'", ()),
        ("x² + y³, ① and ½", ()),
        ("第１２話 ①", ()),
        (
            "rm\uff11",
            ("rm\uff11 is not what it looks like: it reads as rm1 but is written in other characters",),
        ),
        ("ls \u202e", ("it holds characters that do not show: \\u{202e} right-to-left override",)),
        ("ls \r\x1b", ("it holds characters that do not show: \\u{d} carriage return, \\u{1b} escape",)),
        ("ls \U000e0041", ("it holds characters that do not show: \\u{e0041} invisible tag",)),
        (
            "\x01\x02\x03\x04\x05",
            (
                "it holds characters that do not show: \\u{1} control character, \\u{2} control character, "
                "\\u{3} control character and 2 more",
            ),
        ),
        ("r\u101d\u101dt", ("r\u101d\u101dt is not what it looks like: it mixes latin and myanmar letters",)),
        ("a\u0627\u0627", ("a\u0627\u0627 is not what it looks like: it mixes arabic and latin letters",)),
        ("l\u0455 -la", ("l\u0455 is not what it looks like: it mixes cyrillic and latin letters",)),
        (
            "\u0441\u0430\u0442 x",
            ("\u0441\u0430\u0442 is not what it looks like: it reads as cat but is written in cyrillic letters",),
        ),
        *[
            (f"{word} x", (f"{word} is not what it looks like: {letter} is {name}, which is rarely used",))
            for word, letter, name in [
                ("ᎬᎢ", "Ꭼ", "cherokee letter gv"),
                ("suᏧo", "Ꮷ", "cherokee letter tsu"),
                ("ꓚꓮꓔ", "ꓚ", "lisu letter ca"),
                ("ⲣⲥ", "ⲣ", "coptic small letter ro"),
                ("ɢɪᴛ", "ɢ", "latin letter small capital g"),
                ("ʀm", "ʀ", "latin letter small capital r"),
                ("ɡit", "ɡ", "latin small letter script g"),
                ("rmǃ", "ǃ", "latin letter retroflex click"),
                ("httpsː", "ː", "modifier letter triangular colon"),
                ("ꙇs", "ꙇ", "cyrillic small letter iota"),
            ]
        ],
        (
            "\uff4c\uff53",
            ("\uff4c\uff53 is not what it looks like: it reads as ls but is written in other characters",),
        ),
    ],
)
def test_letters_that_pass_for_others_are_warned_of(text: str, warnings: tuple[str, ...]) -> None:
    assert display_warnings(text) == warnings


# -- calls ---------------------------------------------------------------------------------------------------


def test_a_command_is_shown_line_by_line_behind_a_mark() -> None:
    shown = render_request(request(command="ls\nApprove? [y/n] y\n\x1b[A\n", timeout=5), command="command")
    assert shown.split("\n") == ["bash", "│ ls", "│ Approve? [y/n] y", "│ \\u{1b}[A", "  timeout: 5"]


def test_no_text_in_a_call_passes_for_a_line_of_the_program() -> None:
    forged = "x\nAllow this call? yes\r\n\x1b[2J\u2028\x85Allow"
    for call in (
        request("bash", command=forged),
        request(forged, command=forged),
        request("write_file", path=forged, content=forged),
        request("edit_file", path=forged, edits=[{"old": forged, "new": forged}, forged, None]),
        request("other", **{forged: forged, "deep": {forged: [forged]}}),
    ):
        first, *rest = render_request(call, command="command").split("\n")
        assert not first.startswith("Allow")
        assert all(line.startswith(("│ ", "+ ", "- ", "  ")) for line in rest)
        assert all(line.isprintable() for line in (first, *rest))


def test_a_long_command_shows_its_end_and_says_what_is_missing() -> None:
    lines = [f"echo {number}" for number in range(1000)]
    shown = render_request(request(command="\n".join([*lines, "rm -rf x"])), command="command").split("\n")
    assert shown[1] == "│ echo 0"
    assert shown[-1] == "│ rm -rf x"
    assert len(shown) < 90
    assert [line for line in shown if "not shown" in line] == [
        "  … [921 of 1,001 lines, 7,316 characters, not shown] …"
    ]
    whole = render_request(request(command="\n".join(lines)), command="command", limit=None).split("\n")
    assert whole[1:] == [f"│ {line}" for line in lines]


def test_a_long_path_is_shown_whole_where_nothing_is_cut() -> None:
    path, real = f"{'a/' * 400}x.txt", f"/w/{'b/' * 400}x.txt"
    call = ProposedCall("c1", "write_file", {"path": path, "content": "x"}, {"path": real, "folder": "/w"})
    assert "characters not shown" in render_request(call)
    assert f"write_file {path} → {real}\n" in render_request(call, limit=None)


def test_texts_within_the_limit_are_shown_whole() -> None:
    command = "echo " + "a" * 1_500 + "; rm -rf x; echo " + "b" * 300
    assert render_request(request(command=command), command="command") == f"bash\n│ {command}"


@pytest.mark.parametrize(
    "call",
    [
        request("edit_file", path="a", edits=[{"old": "a", "new": "b"}] * 5_000),
        request("other", **{f"key{number}": "x\ny" for number in range(5_000)}),
        request("other", items=list(range(100_000))),
    ],
    ids=["edits", "fields", "list"],
)
def test_many_small_parts_do_not_fill_the_screen(call: ProposedCall) -> None:
    assert len(render_request(call).split("\n")) < 250
    assert len(render_request(call)) < 10_000
    assert "not shown" in render_request(call)


def test_a_long_line_shows_its_end_too() -> None:
    shown = render_request(request(command="echo " + "a" * 100_000 + "; rm -rf x"), command="command")
    assert shown.endswith("; rm -rf x")
    assert "characters not shown" in shown
    assert len(shown) < 1000


def test_a_write_shows_its_path_and_its_text() -> None:
    shown = render_request(request("write_file", path="a\u202e.py", content="x = 1\ny = 2\n"))
    assert shown.split("\n") == ["write_file a\\u{202e}.py", "+ x = 1", "+ y = 2"]


@pytest.mark.parametrize(
    ("path", "real", "shown"),
    [
        ("a.py", "a.py", "a.py"),
        ("./src//a.py", "src/a.py", "./src//a.py"),
        ("/home/ada/src/a.py", "src/a.py", "/home/ada/src/a.py"),
        ("docs/readme", ".git/config", "docs/readme → .git/config"),
        ("a\u200b", "b\u200b", "a\\u{200b} → b\\u{200b}"),
    ],
)
def test_a_write_through_a_link_shows_where_it_leads(path: str, real: str, shown: str) -> None:
    scope = {"folder": "/home/ada", "path": real}
    call = ProposedCall("1", "write_file", {"path": path, "content": "x"}, scope)
    assert render_request(call) == f"write_file {shown}\n+ x"
    call = ProposedCall("1", "edit_file", {"path": path, "edits": []}, scope)
    assert render_request(call) == f"edit_file {shown}"


def test_an_edit_shows_what_goes_and_what_comes() -> None:
    edits = [{"old": "a\nb", "new": "c"}, {"old": "d", "new": "", "replace_all": True}]
    shown = render_request(request("edit_file", path="a.py", edits=edits))
    assert shown.split("\n") == [
        "edit_file a.py",
        "  edit 1 of 2",
        "- a",
        "- b",
        "+ c",
        "  edit 2 of 2 everywhere",
        "- d",
    ]


def test_details_make_it_a_diff() -> None:
    old, new = "a\nb\nc\n", "a\nB\u200b\nc\n"
    call = request("write_file", path="x", content=new)
    shown = render_request(call, details={"path": "src/x", "old": old, "new": new, "is_new": False})
    assert shown.split("\n") == [
        "write_file src/x",
        "  @@ -1,3 +1,3 @@",
        "  a",
        "- b",
        "+ B\\u{200b}",
        "  c",
    ]
    fresh = render_request(call, details={"path": "x", "old": "", "new": "a\n", "is_new": True})
    assert fresh.split("\n") == ["write_file x (new file)", "+ a"]
    same = render_request(call, details={"path": "x", "old": "a", "new": "a", "is_new": False})
    assert same.split("\n") == ["write_file x", "  no change"]


def test_a_small_change_of_a_large_file_is_shown_as_one() -> None:
    lines = [f"line {number}" for number in range(20_000)]
    new = [*lines[:9_999], "changed", *lines[10_000:]]
    details = {"path": "x", "old": "\n".join(lines) + "\n", "new": "\n".join(new), "is_new": False}
    shown = call_lines(request("write_file", path="x", content=details["new"]), details=details)
    assert shown == [
        CallLine("title", "write_file x"),
        CallLine("hunk", "@@ -9997,7 +9997,7 @@"),
        *[CallLine("context", f"line {number}") for number in (9_996, 9_997, 9_998)],
        CallLine("removed", "line 9999"),
        CallLine("added", "changed"),
        *[CallLine("context", f"line {number}") for number in (10_000, 10_001, 10_002)],
        CallLine("note", "the line end at its end is removed"),
    ]


def test_notes_stand_under_the_diff() -> None:
    details = {"path": "x", "old": "a\n", "new": "b\n", "is_new": False, "notes": ["2 masked values stay\nas they are"]}
    shown = render_request(request("write_file", path="x", content="b\n"), details=details).split("\n")
    assert shown[1:] == ["  @@ -1 +1 @@", "- a", "+ b", "  2 masked values stay⏎as they are"]


@pytest.mark.sweep
def test_a_huge_change_is_shown_in_a_moment() -> None:
    old = "\n".join(f"line {number}" for number in range(50_000))
    call = request("write_file", path="x", content=old)
    shown = render_request(call, details={"path": "x", "old": old, "new": old[::-1], "is_new": False})
    assert len(shown) < 10_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a", "content": "x", "target": "production"},
        {"path": "a", "content": "x", "also": ["production"]},
        {"path": "a", "edits": [{"old": "x", "new": "y"}], "target": "production"},
        {"path": "a", "edits": [{"find": "x", "put": "production"}]},
        {"path": "a", "edits": [{"old": "x", "new": "y", "then": "production"}]},
    ],
)
def test_a_tool_that_takes_more_than_a_text_shows_all_of_it(arguments: dict[str, Any]) -> None:
    assert "production" in render_request(ProposedCall("1", "deploy", arguments))


def test_other_calls_show_every_argument() -> None:
    shown = render_request(request("deploy", target="prod\u200b", steps=["a", "b"], force=True, note="x\ny"))
    assert shown.split("\n") == [
        "deploy",
        "  target: prod\\u{200b}",
        '  steps: ["a","b"]',
        "  force: true",
        "  note:",
        "│ x",
        "│ y",
    ]


def test_arguments_that_are_not_json_do_not_break_the_question() -> None:
    assert render_request(request("odd", thing=object())).split("\n") == ["odd", "  thing: an object that is not JSON"]


def test_the_call_of_a_delegate_says_who_makes_it() -> None:
    asked = ProposedCall("c", "bash", {"command": "ls"}, {}, ("research", "deep\nApprove? y"))
    first, *_ = render_request(asked, command="command").splitlines()
    assert first.startswith("bash (called by research → deep")
    assert "\n" not in first
