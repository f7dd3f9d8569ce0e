"""One value changes, and nothing else in the file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.app.settings.toml_file import TomlFile, flatten

FILE = """# my settings

# the model that I like
model = "anthropic:claude-sonnet-4-6"   # not too dear
tools = [
  "bash",  # careful
  "search",
]

[base_url]
# the office
openai = "http://10.0.0.1" # "quoted" # twice
"""


def test_a_value_is_replaced_where_it_stands_with_its_comment() -> None:
    assert TomlFile(FILE).with_value("model", "local:x") == FILE.replace('"anthropic:claude-sonnet-4-6"', '"local:x"')
    assert TomlFile(FILE).with_value("base_url.openai", "http://b") == FILE.replace(
        '"http://10.0.0.1" #', '"http://b" #'
    )


def test_a_value_of_several_lines_becomes_one() -> None:
    changed = TomlFile(FILE).with_value("tools", ["bash"])
    assert changed == FILE.replace('tools = [\n  "bash",  # careful\n  "search",\n]\n', 'tools = ["bash"]\n')


def test_a_new_value_goes_to_the_end_of_its_table() -> None:
    assert TomlFile(FILE).with_value("max_turns", 9) == FILE.replace(
        "]\n\n[base_url]", "]\nmax_turns = 9\n\n[base_url]"
    )
    assert TomlFile(FILE).with_value("base_url.xai", "http://x") == FILE + 'xai = "http://x"\n'
    assert TomlFile("").with_value("base_url.xai", "http://x") == '[base_url]\nxai = "http://x"\n'
    assert TomlFile("# mine\n").with_value("a", 1) == "# mine\na = 1\n"
    assert TomlFile("# of the table\n[t]\nb = 2").with_value("a", 1) == "a = 1\n# of the table\n[t]\nb = 2\n"
    assert TomlFile("a = 1").with_value("t.b", True) == "a = 1\n\n[t]\nb = true\n"


def test_a_value_is_taken_out_and_nothing_else() -> None:
    assert TomlFile(FILE).without("model") == FILE.replace(
        'model = "anthropic:claude-sonnet-4-6"   # not too dear\n', ""
    )
    assert TomlFile(FILE).without("no_such") == FILE


def test_dotted_keys_and_windows_line_ends_are_kept() -> None:
    assert TomlFile("base_url.xai = 'http://a'\r\nb = 1\r\n").with_value("base_url.xai", "http://b") == (
        'base_url.xai = "http://b"\r\nb = 1\r\n'
    )


def test_an_edited_line_keeps_its_indent_spacing_key_and_comment() -> None:
    text = "\t'a'=[\n  1, # one\n] # all\n"
    assert TomlFile(text).with_value("a", [2]) == "\t'a'=[2] # all\n"
    assert TomlFile("[ t ]\n  a = 1\n\n# of u\n[u]\n").with_value("t.b", 2) == (
        "[ t ]\n  a = 1\n  b = 2\n\n# of u\n[u]\n"
    )


def test_a_table_of_dotted_keys_grows_by_one() -> None:
    assert TomlFile("t.u.a = 1\nc = 2\n").with_value("t.u.b", 3) == "t.u.a = 1\nt.u.b = 3\nc = 2\n"
    assert TomlFile("[t]\nu.a = 1\n\n[v]\n").with_value("t.u.b", 3) == "[t]\nu.a = 1\nu.b = 3\n\n[v]\n"


def test_new_lines_end_like_those_of_the_file() -> None:
    assert TomlFile("a = 1\r\n").with_value("t.b", 2) == "a = 1\r\n\r\n[t]\r\nb = 2\r\n"
    assert TomlFile("a = 1\r\n").with_value("b", 2) == "a = 1\r\nb = 2\r\n"


@pytest.mark.parametrize(
    "text", ["base_url = {a = 1, b = 2}\n", "[[base_url.a]]\nx = 1\n", "[[base_url]]\na = 1\n", "base_url = 1"]
)
def test_files_that_cannot_be_edited_safely_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="by hand"):
        TomlFile(text).with_value("base_url.a", 3)


def test_a_list_of_tables_is_not_taken_out() -> None:
    with pytest.raises(ValueError, match="by hand"):
        TomlFile("[[t]]\na = 1\n").without("t")


def test_lines_are_told() -> None:
    file = TomlFile(FILE)
    assert [file.lines().get(key) for key in ("model", "tools", "base_url.openai", "nothing")] == [4, 5, 12, None]


SIMPLE = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.text()),
)
KEYS = st.text("abcdefgh_", min_size=1, max_size=4)
DOCUMENTS = st.dictionaries(
    st.one_of(KEYS, st.tuples(KEYS, KEYS).map(lambda pair: f"T{pair[0]}.{pair[1]}")), SIMPLE, max_size=6
)


@given(DOCUMENTS, st.data())
def test_any_set_value_is_read_back_and_the_rest_stays(values: dict[str, object], data: st.DataObject) -> None:
    text = "# opened by a comment\n\n"
    for key, value in values.items():
        text = TomlFile(text).with_value(key, value)
    assert flatten(tomllib.loads(text)) == values
    assert text.startswith("# opened by a comment\n")
    for key in data.draw(st.lists(st.sampled_from(sorted(values)), unique=True)) if values else []:
        text = TomlFile(text).without(key)
        del values[key]
        assert flatten(tomllib.loads(text)) == values


# Every way to write a table, with comments, indents and line ends, in any order that is TOML: {n} is the line's own.
LINES = [
    "",
    "# {n}",
    "a={n}",
    "  b = {n}  # one # two",
    "\t'c' = '#{n}' # a = 1",
    'd = """\n[t]\n# {n}\n"""',
    "b = [ # {n}\n  {n},\n\n] # end",
    "v.a = {n}",
    '"v" . b = {n} # x',
    '"v.c" = {n}',
    "w = {{ a = {n}, b = 2 }}",
    "w = {{ a = {n} }} # one",
    "[t]",
    "  [ v ] # {n}",
    "[t.v]",
    "['t'.\"x\"]",
    "[[l]]",
    "[l.m]",
    "[[t.l]]",
]
DOTTED = [f"{table}{name}" for table in ("", "v.", "t.", "t.v.", "w.", "l.", "l.m.", "t.x.") for name in "abcd"]


@st.composite
def files(draw: st.DrawFn) -> str:
    text = ""
    for number, line in enumerate(draw(st.lists(st.sampled_from(LINES), max_size=14))):
        longer = text + line.format(n=number + 100) + "\n"
        if is_toml(longer):
            text = longer
    text = text.removesuffix("\n") if draw(st.booleans()) else text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@st.composite
def files_and_keys(draw: st.DrawFn) -> tuple[str, str]:
    text = draw(files())
    there = sorted(flatten(tomllib.loads(text)))
    return text, draw(st.sampled_from(there) if there and draw(st.booleans()) else st.sampled_from(DOTTED))


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def exchanged(before: str, after: str) -> tuple[str, str]:
    """The lines of one text that the other does not have, in the one place where they differ."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])


def edited(edit: Callable[[], str]) -> str | None:
    """The outcome of an edit, or nothing if it was refused, which says what to do."""
    try:
        return edit()
    except ValueError as error:
        told = str(error)
    assert told.endswith("edit it by hand")
    return None


def ended(text: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return text if not text or text.endswith("\n") else text + newline


@settings(max_examples=200)
@given(files_and_keys(), st.sampled_from([7, "x # y", ["p", "q"], True]))
def test_an_edit_touches_one_assignment_or_is_refused(where: tuple[str, str], value: object) -> None:
    text, key = where
    values = flatten(tomllib.loads(text))
    after = edited(lambda: TomlFile(text).with_value(key, value))
    if after is None:
        return
    assert flatten(tomllib.loads(after)) == {**values, key: value}
    gone, come = exchanged(text if key in values else ended(text), after)
    if key in values:
        assert list(flatten(tomllib.loads(gone)).values()) == [values[key]]
        if "\n" not in gone.strip():
            assert gone.partition("#")[0].partition("=")[0] == come.partition("=")[0]
            assert come.endswith(gone[gone.rindex(" #") :] if " #" in gone else "\n" if gone.endswith("\n") else "")
    else:
        assert gone == ""
        assert "\r\n" not in text or "\n" not in come.replace("\r\n", "")
    assert list(flatten(tomllib.loads(come)).values()) == [value]
    assert TomlFile(after).with_value(key, value) == after


@settings(max_examples=200)
@given(files_and_keys())
def test_removing_takes_one_assignment_or_is_refused(where: tuple[str, str]) -> None:
    text, key = where
    values = flatten(tomllib.loads(text))
    after = edited(lambda: TomlFile(text).without(key))
    if after is None:
        parts = key.split(".")
        above = [".".join(parts[:length]) for length in range(1, len(parts))]
        assert key in values or any(isinstance(values.get(path), list) for path in above)  # one of several, perhaps
        return
    gone, come = exchanged(text, after)
    assert come == ""
    assert list(flatten(tomllib.loads(gone)).values()) == ([values.pop(key)] if key in values else [])
    assert flatten(tomllib.loads(after)) == values


def test_a_text_that_no_file_can_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be encoded as UTF-8"):
        TomlFile("").with_value("a", "\ud800")
    with pytest.raises(ValueError, match="NoneType"):
        TomlFile("").with_value("a", None)
