"""The output on stdout when a command ends before its run."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import pytest

from swink_agent.cli.process.unanswered import UnansweredOutput


@pytest.fixture(autouse=True)
def in_the_main_thread() -> Any:
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_cannot_come_between_the_first_and_its_object(capsys: pytest.CaptureFixture[str]) -> None:
    class SecondInterrupt(UnansweredOutput):
        def __exit__(self, *error: Any) -> None:
            signal.raise_signal(signal.SIGINT)  # before a line of the exit has run
            super().__exit__(*error)

    with pytest.raises(KeyboardInterrupt), SecondInterrupt("json"):
        signal.raise_signal(signal.SIGINT)
    assert json.loads(capsys.readouterr().out)["error"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_end_without_an_interrupt_leaves_ctrl_c_as_it_was() -> None:
    with UnansweredOutput("json"):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(OSError, match="x"), UnansweredOutput(""):
        raise OSError("x")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with UnansweredOutput("json"):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
