"""Optional packages: what is raised when one is missing."""

from __future__ import annotations

import pickle

import pytest

from swink_agent.core.extras import MissingExtra, require


def test_a_package_that_is_there_is_imported() -> None:
    assert require("json.decoder", extra="any").JSONDecoder


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("no_such_package.part", extra="tui")
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "no_such_package is not installed: pip install 'swink-agent[tui]'"
    assert (error.package, error.extra) == ("no_such_package", "tui")
