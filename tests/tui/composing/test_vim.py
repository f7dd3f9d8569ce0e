"""The keys of vim in a draft: the same results as in vim, and no key loses text or undo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.tui.composing.draft import Draft
from swink_agent.tui.composing.vim import Vim

NAMES = {"^[": ("escape", None), "^R": ("ctrl+r", None), "<CR>": ("enter", "\r"), "<Left>": ("left", None)}


def split(keys: str) -> list[str]:
    found: list[str] = []
    while keys:
        name = next((name for name in NAMES if keys.startswith(name)), keys[0])
        found.append(name)
        keys = keys[len(name) :]
    return found


class Typist:
    """A draft and its vim, as the composer connects them."""

    def __init__(self, text: str = "", at: int | None = None) -> None:
        self.draft = Draft(text)
        self.vim = Vim()
        if at is not None:
            self.draft.move(at)
            self.vim.mode = "NORMAL"
            self.vim.clamp(self.draft)

    def press(self, keys: str) -> Typist:
        for key in split(keys):
            name, character = NAMES.get(key, (key, key))
            taken = self.vim.press(name, character, self.draft)
            if taken == "pass" and self.vim.mode == "INSERT" and character is not None:
                self.draft.insert(character.replace("\r", "\n"), is_typed=True)
            elif taken in ("up", "down"):  # the composer moves by rows; a line is one here
                self.vim.press("1", "1", self.draft)
                self.vim.press("k", "k" if taken == "up" else "j", self.draft)
        return self

    @property
    def shown(self) -> str:
        """The text with the cursor as `|`."""
        return f"{self.draft.text[: self.draft.cursor]}|{self.draft.text[self.draft.cursor :]}"


CASES = [
    # motions
    ("one two  three", 0, "w", "one |two  three"),
    ("one two  three", 0, "2w", "one two  |three"),
    ("one.two", 0, "w", "one|.two"),
    ("one.two three", 0, "W", "one.two |three"),
    ("one two", 6, "b", "one |two"),
    ("one.two three", 8, "B", "|one.two three"),
    ("one two", 0, "e", "on|e two"),
    ("one two", 0, "ee", "one tw|o"),
    ("a\n\nb", 0, "w", "a\n|\nb"),
    ("  one two", 8, "0", "|  one two"),
    ("  one two", 8, "^", "  |one two"),
    ("one two", 0, "$", "one tw|o"),
    ("one\n  two\nthree", 0, "G", "one\n  two\n|three"),
    ("one\n  two\nthree", 12, "gg", "|one\n  two\nthree"),
    ("one\n  two\nthree", 0, "2G", "one\n  |two\nthree"),
    ("one\ntwo\nthree", 2, "j", "one\ntw|o\nthree"),
    ("one\ntwo", 6, "k", "on|e\ntwo"),
    ("one", 0, "5l", "on|e"),
    ("one", 2, "5h", "|one"),
    ("a,b,c", 0, "f,", "a|,b,c"),
    ("a,b,c", 0, "2f,", "a,b|,c"),
    ("a,b,c", 0, "f,;", "a,b|,c"),
    ("a,b,c", 4, "F,", "a,b|,c"),
    ("a,b,c", 0, "t,", "|a,b,c"),
    ("a,b,c", 0, "t,;", "a,|b,c"),
    ("a,b,c", 4, "T,", "a,b,|c"),
    ("a,b,c", 0, "f,;,", "a|,b,c"),
    ("one", 0, "fx", "|one"),
    # operators
    ("one two three", 0, "dw", "|two three"),
    ("one two three", 0, "d2w", "|three"),
    ("one two three", 0, "2dw", "|three"),
    ("one two", 4, "dw", "one| "),
    ("one\ntwo", 0, "dw", "|\ntwo"),
    ("one two", 0, "de", "| two"),
    ("one two", 4, "db", "|two"),
    ("one two", 4, "d0", "|two"),
    ("one two", 4, "d$", "one| "),
    ("one two", 4, "D", "one| "),
    ("a(b)c", 1, "dt)", "a|)c"),
    ("a(b)c", 1, "df)", "a|c"),
    ("one\ntwo\nthree", 4, "dd", "one\n|three"),
    ("one\ntwo", 4, "dd", "|one"),
    ("one\ntwo\nthree", 0, "2dd", "|three"),
    ("one\ntwo\nthree", 0, "dj", "|three"),
    ("one\ntwo\nthree", 8, "dk", "|one"),
    ("one\ntwo\nthree", 4, "dG", "|one"),
    ("one\ntwo\nthree", 4, "dgg", "|three"),
    ("one", 0, "dj", "|one"),
    ("one", 0, "dd", "|"),
    ("one two", 0, "cwnew^[", "ne|w two"),
    ("one two", 0, "ccnew^[", "ne|w"),
    ("one two", 4, "Cnew^[", "one ne|w"),
    ("one\ntwo", 0, "Snew^[", "ne|w\ntwo"),
    ("one two", 0, "ywwP", "one one| two"),
    ("one two", 0, "ywP", "one| one two"),
    ("one\ntwo", 0, "yyp", "one\n|one\ntwo"),
    ("one\ntwo", 4, "yyP", "one\n|two\ntwo"),
    ("one\ntwo", 0, "ddp", "two\n|one"),
    ("one\ntwo", 0, "yy2p", "one\n|one\none\ntwo"),
    ("ab", 0, "xp", "b|a"),
    ("abc", 0, "x3p", "baa|ac"),
    ("abc", 0, "2x", "|c"),
    ("abc", 2, "X", "a|c"),
    ("abc", 0, "rx", "|xbc"),
    ("abc", 0, "2rx", "|xxc"),
    ("abc", 0, "5rx", "|abc"),
    ("abc", 0, "sx^[", "|xbc"),
    ("abc", 0, "2~", "AB|c"),
    ("one\n  two", 0, "J", "one| two"),
    ('say "one two" now', 6, 'di"', 'say "|" now'),
    ('say "one two" now', 6, 'ci"x^[', 'say "|x" now'),
    ("f(a, (b), c)", 3, "di(", "f(|)"),
    ("f(a, (b), c)", 6, "da(", "f(a, |, c)"),
    ("one two three", 5, "diw", "one | three"),
    ("one two three", 5, "daw", "one |three"),
    ("  one", 3, "daw", " | "),
    ("a b (c) d", 0, "di(", "a b (|) d"),
    ("(a)\n", 4, "di(", "(a)\n|"),
    ("one two", 5, "yy", "one t|wo"),
    ("one", 0, "2dd", "|one"),
    # insert
    ("one", 0, "ix^[", "|xone"),
    ("one", 0, "ax^[", "o|xne"),
    ("  one", 4, "Ix^[", "  |xone"),
    ("one", 0, "Ax^[", "one|x"),
    ("one\ntwo", 0, "ox^[", "one\n|x\ntwo"),
    ("one\ntwo", 4, "Ox^[", "one\n|x\ntwo"),
    ("one", 0, "3ix^[", "xx|xone"),
    # undo, redo, repeat
    ("one two", 0, "dwu", "|one two"),
    ("one two", 0, "dwu^R", "|two"),
    ("one", 0, "Athree words here^[u", "on|e"),
    ("one two three", 0, "cwnew words^[u", "|one two three"),
    ("one two three", 0, "dw.", "|three"),
    ("a b c d e f", 0, "dw3.", "|e f"),
    ("one two three", 0, "cwx^[w.", "x |x three"),
    ("one\ntwo", 0, "A;^[j.", "one;\ntwo|;"),
    ("one\ntwo", 0, "ddP.", "|one\none\ntwo"),
    # visual
    ("one two", 0, "vlld", "| two"),
    ("one two", 6, "vhhd", "one| "),
    ("one two", 0, "ved", "| two"),
    ("one\ntwo\nthree", 0, "Vjd", "|three"),
    ("one two", 0, "vey$p", "one twoon|e"),
    ("one two", 0, "veywvep", "one |one"),
    ("one two", 0, "vecx^[", "|x two"),
    ("one two", 0, "vl^[x", "o|e two"),
    # nothing that is half typed does anything
    ("one two", 0, "d^[w", "one |two"),
    ("one two", 0, "dz", "|one two"),
    ("one two", 0, "gx", "|one two"),
    ("", 0, "xdwJ~rxvdD", "|"),
]


@pytest.mark.table
@pytest.mark.parametrize(("text", "at", "keys", "wanted"), CASES)
def test_it_does_what_vim_does(text: str, at: int, keys: str, wanted: str) -> None:
    typist = Typist(text, at).press(keys)
    assert typist.shown == wanted
    assert typist.vim.mode == "NORMAL"


def test_escape_leaves_insert_mode_and_then_means_what_it_always_means() -> None:
    typist = Typist()
    assert (typist.vim.mode, typist.vim.takes_escape) == ("INSERT", True)
    typist.press("one^[")
    assert (typist.vim.mode, typist.vim.takes_escape) == ("NORMAL", False)
    assert typist.vim.press("escape", None, typist.draft) == "pass"
    typist.press("d")
    assert typist.vim.takes_escape
    assert typist.vim.press("escape", None, typist.draft) == "done"
    assert typist.press("v").vim.mode == "VISUAL"
    assert typist.press("V").vim.mode == "V-LINE"


def test_escape_and_a_letter_that_arrive_at_once_are_two_keys() -> None:
    typist = Typist().press("one two")
    assert typist.vim.press("alt+b", None, typist.draft) == "done"
    assert (typist.vim.mode, typist.shown) == ("NORMAL", "one |two")


def test_keys_of_the_composer_are_left_to_it_and_nothing_is_selected_then() -> None:
    typist = Typist("one two", 0).press("vl")
    assert typist.draft.selection is not None
    assert typist.vim.press("ctrl+u", None, typist.draft) == "pass"
    assert (typist.draft.selection, typist.vim.mode) == (None, "NORMAL")


def test_a_folded_paste_is_one_word_and_can_be_moved_and_repeated() -> None:
    typist = Typist()
    typist.draft.insert("see ")
    typist.draft.insert_token("paste", "[paste #]", "many\nlines\n" * 500)
    typist.draft.insert(" now")
    typist.press("^[0wdw")
    assert typist.draft.sent().text == "see now"
    typist.press("$p")
    assert typist.draft.sent().text == "see now" + "many\nlines\n" * 500 + " "
    typist.press("p")
    assert typist.draft.sent().text.count("many") == 1000
    typist.press("uuu")
    assert typist.draft.sent().text == "see " + "many\nlines\n" * 500 + " now"


def test_kept_text_survives_in_the_next_draft() -> None:
    typist = Typist("one", 0).press("yy")
    typist.draft.clear()
    typist.vim.reset()
    assert typist.press("two^[p").draft.text == "two\none"


TEXTS = st.text(st.sampled_from('ab .,("\n\u0301\u00e9\U0001f469\u200d'), max_size=24)
MOVES = st.sampled_from(
    ["h", "j", "k", "l", "w", "b", "e", "W", "E", "0", "^", "$", "gg", "G", "fa", "t.", "Fb", ";", ","]
)
NO_CHANGE = st.one_of(MOVES, st.sampled_from(["3", "yw", "y$", "yy", "yiw", "v", "V", "^[", "o^[", 'yi"', "q", "z"]))
CHANGES = st.sampled_from(
    [
        "x",
        "3x",
        "dw",
        "d2b",
        "dd",
        "dG",
        "D",
        "cwfoo bar^[",
        "ccx^[",
        "p",
        "2P",
        "oline^[",
        "O^[",
        "A b^[",
        "rq",
        "J",
        "~",
        ".",
    ]
)


@given(
    TEXTS, st.lists(st.one_of(MOVES, st.sampled_from(["yw", "yy", "y$", "vey", "Vjy", "yiw", "^[", "q"])), max_size=12)
)
def test_moving_and_copying_change_nothing(text: str, keys: list[str]) -> None:
    typist = Typist(text, 0)
    before = typist.draft.text
    for key in keys:
        typist.press(key)
        assert typist.draft.text == before
    assert not typist.draft.undo()


@given(
    TEXTS,
    st.lists(st.one_of(MOVES, st.sampled_from(["ix^[", "ay z^[", "oq^[", "Or^[", "A.^[", "yyp", "ywP"])), max_size=10),
)
def test_inserting_commands_lose_nothing(text: str, keys: list[str]) -> None:
    typist = Typist(text, 0)
    before = typist.draft.text
    typist.press("".join(keys))
    rest = iter(typist.draft.text)
    assert all(character in rest for character in before)


@given(TEXTS, st.lists(st.one_of(MOVES, CHANGES), max_size=14))
def test_undo_goes_back_through_every_state_and_redo_forward_again(text: str, keys: list[str]) -> None:
    typist = Typist(text, 0)
    states = [typist.draft.text]
    for key in keys:
        typist.press(key)
        assert typist.vim.mode == "NORMAL"
        at, draft = typist.draft.cursor, typist.draft
        assert 0 <= at <= len(draft.text)
        assert at == len(draft.text) or draft.before(draft.after(at)) == at  # on a whole character
        if states[-1] != draft.text:
            states.append(draft.text)
    last = typist.draft.text
    for wanted in reversed(states[:-1]):
        while typist.draft.text != wanted:
            before = typist.draft.text
            typist.press("u")
            assert typist.draft.text != before or typist.draft.text in states
            assert typist.draft.text in states
    assert typist.draft.text == states[0]
    for _ in range(len(keys) + 5):
        typist.press("^R")
    assert typist.draft.text == last


@given(TEXTS, st.lists(st.one_of(MOVES, CHANGES, NO_CHANGE, st.characters()), max_size=20))
def test_no_keys_break_it(text: str, keys: list[str]) -> None:
    typist = Typist(text, 0)
    typist.press("".join(keys))
    typist.press("^[^[")
    assert typist.vim.mode == "NORMAL"
    assert 0 <= typist.draft.cursor <= len(typist.draft.text)
