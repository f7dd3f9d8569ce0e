"""The process that forks the children to kill, and the providers that check the histories afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .acceptance import Loop, Providers
from .checking import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


@pytest.fixture(scope="session")
def providers(loop: Loop) -> Iterator[Providers]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "OLLAMA_HOST", "OLLAMA_API_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "fake-key")
        with Providers(loop) as providers:
            yield providers
