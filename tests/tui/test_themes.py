"""Themes: every role has a style in each theme, and the plain theme has no colours."""

from __future__ import annotations

import re

import pytest

from swink_agent.tui.themes import ROLES, THEMES, Style, sgr, theme_for


@pytest.mark.parametrize("name", THEMES)
def test_a_theme_has_colours_unless_it_is_plain(name: str) -> None:
    theme = THEMES[name]
    colours = [colour for role in ROLES for colour in theme.style_of(role)[:2] if colour is not None]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert bool(colours) == (name != "plain")
    gauge = {theme.style_of(f"gauge.{part}").foreground for part in ("low", "middle", "high")}
    assert len(gauge) == (1 if name == "plain" else 3)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.table
@pytest.mark.parametrize(("name", "least"), [("dark", 4.5), ("light", 4.5), ("contrast", 7.0)])
@pytest.mark.parametrize(
    "role",
    ["text", "strong", "heading.1", "link", "inline", "quote", "code", "user", "tool.name", "tool.summary", "error",
     "warning", "done", "failed", "context+added", "context+removed", "context+added.word", "context+removed.word",
     "hit", "hit.current"],
)  # fmt: skip
def test_texts_have_enough_contrast_in_every_theme(name: str, least: float, role: str) -> None:
    theme = THEMES[name]
    style = theme.style_of(role)
    ground = style.background or theme.background
    assert ground is not None
    assert theme.foreground is not None
    assert _contrast(style.foreground or theme.foreground, ground) >= least


def test_roles_are_laid_over_each_other_and_unknown_ones_look_like_their_kind() -> None:
    dark = THEMES["dark"]
    both = dark.style_of("user+strong")
    assert both.background == dark.style_of("user").background
    assert both.bold
    assert dark.style_of("code.keyword.control") == dark.style_of("code.keyword")
    assert dark.style_of("nothing") == Style()


def test_no_color_wins_over_any_name() -> None:
    assert theme_for("dark", {}).name == "dark"
    assert theme_for("dark", {"NO_COLOR": "1"}).name == "plain"
    assert theme_for("light", {"NO_COLOR": ""}).name == "light"
    with pytest.raises(ValueError, match="dark, light, contrast, plain"):
        theme_for("pink", {})


def test_a_style_as_an_escape_sequence() -> None:
    assert sgr(Style()) == ""
    assert sgr(Style("#010203", None, bold=True)) == "\x1b[1;38;2;1;2;3m"
