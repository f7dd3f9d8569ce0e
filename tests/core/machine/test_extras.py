"""Optional packages: what is raised when one is missing."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from swink_agent.core.machine.extras import MissingExtra, require


def test_a_package_that_is_there_is_imported() -> None:
    assert require("json.decoder", extra="any").JSONDecoder


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("no_such_package.part", extra="tui")
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "no_such_package is not installed: pip install 'swink-agent[tui]'"
    assert (error.package, error.extra) == ("no_such_package", "tui")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("raise ImportError('no libfoo.so')", "no libfoo.so"),
    ],
)
def test_a_broken_package_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    (tmp_path / "broken_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra) as caught:
        require("broken_package", extra="tui")
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == (
        f"broken_package is installed, but cannot be imported ({problem}): pip install 'swink-agent[tui]'"
    )
