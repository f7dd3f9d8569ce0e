"""Private names of Textual are used in one file, and the installed Textual has them with the expected meaning."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.driver import Driver
from textual.message import Message
from textual.messages import InBandWindowResize

import swink_agent.tui
from swink_agent.tui.textual_private import CrashKeepingApp, KeyParser

PACKAGE = Path(swink_agent.tui.__file__).parent
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
THE_FILE = "textual_private.py"


def test_no_other_file_imports_a_private_module_or_name_of_textual() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "textual":
                names = [*(node.module or "").split("."), *[alias.name for alias in node.names]]
            elif isinstance(node, ast.Import):
                names = [part for alias in node.names for part in alias.name.split(".") if "textual" in alias.name]
            else:
                continue
            if any(name.startswith("_") for name in names):
                found.append(path.name)
    assert set(found) == {THE_FILE}


def private_names(kind: type) -> set[str]:
    """The private names of a class: what its body defines, and what its methods assign to `self`."""
    names = set(vars(kind))
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def our_classes() -> list[type]:
    """The classes of this package that are made of Textual's."""
    found: list[type] = []
    for module in pkgutil.walk_packages([str(PACKAGE)], "swink_agent.tui."):
        loaded = importlib.import_module(module.name)
        found += [
            kind
            for kind in vars(loaded).values()
            if inspect.isclass(kind)
            and kind.__module__ == module.name
            and issubclass(kind, (App, DOMNode, Driver, Message))
        ]
    return found


@pytest.mark.sweep
def test_no_class_uses_a_name_that_is_a_private_one_of_its_textual_base() -> None:
    """Whether on purpose or not: it would change what Textual does, and could be changed by a new version."""
    classes = our_classes()
    assert len(classes) > 20
    of_textual: dict[type, set[str]] = {}
    bookkeeping = {"_abc_impl", "_decorated_handlers", "_reactives", "_css_bases", "_merged_bindings", "_bindings"}
    clashes: set[str] = set()
    for kind in classes:
        theirs: set[str] = set()
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] == "textual":
                if base not in of_textual:
                    of_textual[base] = private_names(base)
                theirs |= of_textual[base]
        generated = {name for name in theirs if name.startswith(("_css_", "_inherit_", "_computes", "_merged"))}
        clashes |= {f"{kind.__name__}.{name}" for name in private_names(kind) & theirs - bookkeeping - generated}
    assert clashes == {"CrashKeepingApp._handle_exception", "CrashKeepingApp._fatal_error"}


def fed(*texts: str) -> list[tuple[Any, ...]]:
    """What the parser makes of text, and of the silence behind it."""
    parser = KeyParser(False)
    found: list[Message] = []
    for text in texts:
        found += parser.feed(text)
    found += parser.tick()
    described: list[tuple[Any, ...]] = []
    for message in found:
        if isinstance(message, events.Key):
            described.append((message.key, message.character))
        elif isinstance(message, events.MouseDown):
            described.append(("mouse", message.x, message.y, message.button))
        else:
            described.append((type(message).__name__,))
    return described


@pytest.mark.table
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("aé",), [("a", "a"), ("é", "é")]),
        (("\r", "\x03"), [("enter", "\r"), ("ctrl+c", "\x03")]),
        (("\x1b[1;2", "D"), [("shift+left", None)]),
        (("\x1b[99;5u",), [("ctrl+c", None)]),
        (("\x1b[<0;5;3M",), [("mouse", 4, 2, 1)]),
        (("\x1b[I", "\x1b[O"), [("AppFocus",), ("AppBlur",)]),
        (("\x1b[?2048;1$y",), [("InBandWindowResize",)]),
    ],
)
def test_the_parser_reads_keys_the_mouse_and_reports(texts: tuple[str, ...], expected: list[tuple[Any, ...]]) -> None:
    assert fed(*texts) == expected


def test_after_a_resize_in_band_the_parser_reads_the_mouse_in_pixels() -> None:
    """The driver asks the terminal for pixels because of this."""
    parser = KeyParser(False)
    for _ in parser.feed("\x1b[48;40;120;800;1200t"):
        pass
    clicks = [message for message in parser.feed("\x1b[<0;100;40M") if isinstance(message, events.MouseDown)]
    assert [(click.x, click.y) for click in clicks] == [(9, 1)]
    assert InBandWindowResize.from_setting_parameter(1).supported


class Failing(CrashKeepingApp[int]):
    def on_mount(self) -> None:
        secret = "sk-very-secret"  # noqa: F841 - a local that a traceback with values would show
        raise ValueError("the screen failed")


async def test_an_error_of_a_handler_ends_the_application_and_is_kept_unprinted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = Failing()
    await app.run_async(headless=True)
    assert isinstance(app.crash, ValueError)
    assert app.return_code == 1
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "")


def test_the_installed_textual_is_one_that_the_package_admits() -> None:
    """A version outside of the bounds has other private names: run this file with it, then move the bounds."""
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    (wanted,) = {line for lines in extras.values() for line in lines if line.startswith("textual")}
    least, most = [bound.strip("<>=") for bound in wanted.removeprefix("textual").split(",")]

    def parts(text: str) -> tuple[int, ...]:
        return tuple([int(part) for part in text.split(".")])

    assert parts(least) <= parts(version("textual"))[:3] < parts(most)
