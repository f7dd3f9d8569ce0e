"""Properties of the rules that hold for every command, tried on many."""

from __future__ import annotations

import shlex
import string

from hypothesis import example, given, settings
from hypothesis import strategies as st

from swink_agent.approvals.commands.denied import denial, named_commands
from swink_agent.approvals.commands.rules import CommandRules
from swink_agent.approvals.commands.shell_words import NotPlain, plain_words, read_script
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.texts.invisible import is_deceptive, ordinary_places

ANYTHING = CommandRules(allow=["ls"])
OPERATORS = list(";&|<>(){}$`*?[]~\r\t")

ordinary_text = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=12).filter(
    lambda text: not any(map(is_deceptive, text))
)
quotes = st.sampled_from(["'", '"', "\\", " ", "a", "~", "=", "-", ".", "é", "$", ";", "x y", "\n"])


@given(st.lists(ordinary_text, max_size=6))
def test_words_that_were_quoted_are_read_back(words: list[str]) -> None:
    # A quote in a word becomes '"'"' here, in which nothing but quotes is left to read.
    command = " ".join(["ls", *map(shlex.quote, words)])
    assert list(plain_words(command)) == ["ls", *words]
    assert ANYTHING.decide(command).verdict == "allow"


@given(st.lists(st.text(string.printable[:95], max_size=12), max_size=6))
def test_words_behind_backslashes_are_read_back(words: list[str]) -> None:
    command = " ".join(["ls", *("".join(f"\\{character}" for character in word) or "''" for word in words)])
    assert list(plain_words(command)) == ["ls", *words]


@given(st.lists(ordinary_text, max_size=4), st.sampled_from(OPERATORS), ordinary_text, st.booleans())
@example([], "&", "", True)
def test_an_operator_outside_of_quotes_is_never_allowed(
    words: list[str], operator: str, rest: str, is_apart: bool
) -> None:
    command = " ".join(["ls", *map(shlex.quote, words)]) + " " * is_apart + operator + shlex.quote(rest)
    if operator == "~" and not is_apart and command[: command.index("~")][-1:].isalnum():
        return  # HEAD~1
    assert ANYTHING.decide(command).verdict == "ask"


@given(st.lists(ordinary_text, max_size=4), ordinary_text)
def test_the_end_of_a_line_is_the_end_of_a_command(words: list[str], rest: str) -> None:
    command = " ".join(["ls", *map(shlex.quote, words)])
    assert ANYTHING.decide(f"{command}\n{command}") == ANYTHING.decide(f"{command}; {command}")
    assert read_script(f"# {rest}\n{command} # {rest}\n\n") == read_script(command)
    assert read_script(command.replace(" ", " \\\n", 1)) == read_script(command)


@given(st.text(max_size=30))
def test_allowed_commands_are_words_that_quote_back_to_themselves(text: str) -> None:
    for command in (text, f"ls {text}"):
        if ANYTHING.decide(command).verdict != "allow":
            continue
        for pipeline in read_script(command):
            for words in pipeline:
                assert words[0] == "ls"
                if not any(character in "\n\t" for character in "".join(words)):
                    assert plain_words(shlex.join(words)) == words
        assert not any(is_deceptive(character) for character in command)


@settings(max_examples=300)
@given(st.lists(quotes, max_size=14).map("".join).filter(lambda text: "\\$" not in text))
def test_the_strict_reading_agrees_with_an_independent_one(text: str) -> None:
    """Where it reads at all, and on text without what `shlex` does not know of, as \\$ in double quotes."""
    try:
        words = plain_words(f"ls {text}")
    except NotPlain:
        return
    assert list(words) == shlex.split(f"ls {text}")


@given(st.text(max_size=40))
def test_the_rough_reading_reads_anything(text: str) -> None:
    assert all(named_commands(text))
    CommandRules(deny=["rm -rf", "git push"]).decide(text)


@given(st.text(max_size=60), st.sampled_from([None, 1, 10, 30]))
def test_nothing_that_deceives_is_displayed(text: str, limit: int | None) -> None:
    shown = safe_display(text, limit)
    ordinary = ordinary_places(shown)
    assert not any(is_deceptive(character) for place, character in enumerate(shown) if place not in ordinary)


@given(st.text(min_size=1, max_size=200), st.integers(2, 50))
def test_the_end_always_shows(text: str, limit: int) -> None:
    shown = safe_display(text, limit)
    # An accent shows at its letter, and is spelled out where it stands alone.
    ends = (text[-1], safe_display(text[-1]))
    assert shown.endswith(ends) or text[-1] == " " or "\\u{" in safe_display(f"a{text[-1]}")
    if len(text) > limit:
        assert f"of {len(text):,} characters not shown" in shown


_PIECES = st.sampled_from(
    [
        *(
            "sudo",
            "SU",
            "su",
            "do",
            "rm",
            "-rf",
            "git",
            "push",
            "git-",
            "bash",
            "-c",
            "env",
            "-i",
            "find",
            "-exec",
            "echo",
        ),
        *("xargs", "alias", "command", "-v", "x=1", "a.b", ".exe", "/usr/bin/", "/", "EOF", "&&", "<<"),
        *" ;|><()#%@+-=,:'\\$*{}\n\t  ",
    ]
)


@settings(max_examples=1_000)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_a_quick_look_denies_what_a_long_one_denies(command: str) -> None:
    deny = [("sudo",), ("su",), ("rm", "-rf"), ("git", "push"), ("/usr/bin/x",)]
    found = CommandRules(deny=[" ".join(rule) for rule in deny]).decide(command).verdict == "deny"
    assert found == (denial(command, deny) is not None)
