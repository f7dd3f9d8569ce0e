"""The table `[keys]` of the settings: names, keys, conflicts, and keys that cannot be bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.app.errors import SettingsError
from swink_agent.app.settings.key_bindings import ACTIONS, KeyMap, conflict_in, read_key, shown_key
from swink_agent.app.settings.settings import load_settings, parse_file, set_value, unset_value

QUESTION_KEYS = ("1", "2", "3", "4", "5", "6", "7", "y", "t", "p", "k", "n", "b", "h", "a", "d", "l", "enter", "escape")


def bound(tmp_path: Path, text: str) -> KeyMap:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load_settings(environ={}, path=path).key_map()


def test_the_usual_keys_are_what_an_action_can_have_and_none_is_there_twice() -> None:
    assert conflict_in({}) is None
    for action in ACTIONS:
        assert action.keys == tuple([read_key(key, action) for key in action.keys])


def test_an_action_gets_the_users_keys_instead_of_the_usual_ones(tmp_path: Path) -> None:
    lines = ('search = "Shift+Ctrl+X"', 'new_line = ["enter", "ctrl+j"]', 'send = ["ctrl+enter"]', "mouse = []")
    keys = bound(tmp_path, "\n".join(["[keys]", *lines]))
    assert keys.keys_of("search") == ("ctrl+shift+x",)
    shown = (keys.shown("search"), keys.shown("new_line", 3), keys.shown("mouse"))
    assert shown == ("Ctrl+Shift+X", "Enter, Ctrl+J", "")
    assert keys.usual("ctrl+shift+x", is_writing=True) == "ctrl+f"
    assert keys.usual("ctrl+f", is_writing=True) is None
    assert keys.usual("ctrl+enter", is_writing=True) == "enter"
    assert keys.usual("enter", is_writing=True) == "shift+enter"
    assert keys.usual("enter", is_writing=False) == "enter"
    assert keys.usual("f6", is_writing=True) is None
    assert keys.usual("x", is_writing=True) == "x"


@pytest.mark.table
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('serch = "ctrl+x"', "keys.serch is not a setting: no action has that name; did you mean keys.search?"),
        ('search = "strg+x"', "keys.search: 'strg+x' is not a key: write it as ctrl+x, alt+enter, shift+tab or f9"),
        ('search = "ctrl+g"', "keys.search: ctrl+g is also the key of editor: give one of the two another key"),
        ("search = 3", "keys.search cannot be 3: it must be a key, such as 'ctrl+x', or a list of keys"),
        ('search = "x"', "x cannot be bound: it types a character"),
        ('send = "shift+y"', "shift+y cannot be bound: it types a character"),
        ('search = "ctrl+c"', "ctrl+c cannot be bound: it stops a run and leaves"),
        ('search = "escape"', "escape cannot be bound"),
        ('search = "f7"', "f7 cannot be bound: it answers whether calls run unasked"),
        ('search = "ctrl+m"', "ctrl+m cannot be bound: terminals send it as Enter"),
        ('search = "alt+x"', "alt+x cannot be bound: most terminals send it as Esc and x"),
        ('search = "enter"', "enter cannot be bound to search: questions and lists need it"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(line: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_file("/c/config.toml", f"theme = 'dark'\n[keys]\n{line}\n".encode())
    assert "/c/config.toml, line 3" in str(caught.value)
    assert said in str(caught.value)


def test_two_lines_with_one_key_are_a_conflict() -> None:
    with pytest.raises(SettingsError, match=r"line 3: keys\.search: ctrl\+x is also the key of editor"):
        parse_file("/c", b'[keys]\neditor = "ctrl+x"\nsearch = "ctrl+x"\n')


def test_keys_as_a_setting_of_its_own_says_how_to_write_it() -> None:
    with pytest.raises(SettingsError, match=r"write keys\.ACTION, such as keys\.search"):
        parse_file("/c", b"keys = 3\n")


def test_a_project_cannot_bind_keys(tmp_path: Path) -> None:
    project = parse_file("/p/.swink/config.toml", b'[keys]\nsearch = "ctrl+x"\n')
    settings = load_settings(environ={}, path=tmp_path / "none", project=project)
    assert settings.key_map().given == {}
    assert any("a project may not set keys.search" in note for note in settings.notes)


def test_they_are_set_and_removed_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert set_value("keys.search", "ctrl+x, f9", path=path) == ("ctrl+x", "f9")
    settings = load_settings(environ={}, path=path)
    assert {action: item.value for action, item in settings.bindings().items()} == {"search": ("ctrl+x", "f9")}
    assert settings.value("keys.editor") == ("ctrl+g",)
    assert list(settings.bindings()) == ["search"]  # what was only looked at is not the user's
    assert unset_value("keys.search", path=path)
    assert load_settings(environ={}, path=path).key_map().given == {}


@given(st.sampled_from(ACTIONS), st.text(max_size=12) | st.sampled_from(QUESTION_KEYS))
def test_no_binding_is_a_key_that_answers_a_question(action: object, text: str) -> None:
    assert action in ACTIONS
    place = next(known for known in ACTIONS if known == action)
    try:
        key = read_key(text, place)
    except ValueError:
        return
    keys = KeyMap({place.name: (key,)})
    for answer in QUESTION_KEYS:
        assert keys.usual(answer, is_writing=False) == answer
    if key not in QUESTION_KEYS:
        assert keys.usual(key, is_writing=False) not in QUESTION_KEYS


def test_keys_are_shown_as_people_write_them() -> None:
    assert [shown_key(key) for key in ("ctrl+x", "pageup", "shift+f2", "ctrl+underscore", "alt+enter")] == [
        *("Ctrl+X", "PageUp", "Shift+F2", "Ctrl+_", "Alt+Enter")
    ]


def test_the_page_on_the_terminal_ui_has_every_action_with_its_keys() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tui.md").read_text()
    for action in ACTIONS:
        assert f"| `{action.name}` | {KeyMap().shown(action.name, 5)} | {action.help} |" in page
