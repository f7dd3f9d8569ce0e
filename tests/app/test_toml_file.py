"""One value changes, and nothing else in the file."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.app.toml_file import TomlFile, flatten, write_value

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


@pytest.mark.parametrize("text", ["base_url = {a = 1, b = 2}\n", "[[base_url.a]]\nx = 1\n"])
def test_what_cannot_be_edited_safely_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="by hand"):
        TomlFile(text).with_value("base_url.a", 3)


def test_lines_are_told() -> None:
    file = TomlFile(FILE)
    assert [file.line_of(key) for key in ("model", "tools", "base_url.openai", "nothing")] == [4, 5, 12, None]


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
def test_whatever_is_set_is_read_back_and_the_rest_stays(values: dict[str, object], data: st.DataObject) -> None:
    text = "# opened by a comment\n\n"
    for key, value in values.items():
        text = TomlFile(text).with_value(key, value)
    assert flatten(tomllib.loads(text)) == values
    assert text.startswith("# opened by a comment\n")
    for key in data.draw(st.lists(st.sampled_from(sorted(values)), unique=True)) if values else []:
        text = TomlFile(text).without(key)
        del values[key]
        assert flatten(tomllib.loads(text)) == values


def test_a_text_that_no_file_can_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="no file can carry"):
        write_value("\ud800")
    with pytest.raises(ValueError, match="NoneType"):
        write_value(None)
