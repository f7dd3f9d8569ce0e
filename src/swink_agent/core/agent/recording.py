"""Connects an agent's transcript with a journal.

Owns what is recorded when a journal is attached. `loop` and `dispatch` record runs; the entries and the `Recorder` are
in `journal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config import AgentLoopConfig
from ..journal import Journal, Past, Recorder
from ..run.transcript import Transcript


def start_recording(
    transcript: Transcript, journal: Journal, past: Past | None, config: AgentLoopConfig, state: Mapping[str, Any]
) -> None:
    """Attaches a journal to a transcript. Without a past, records everything that the agent has so far."""
    recorder = transcript.recorder = Recorder(journal, past)
    recorder.redactor = config.redactor or transcript.own_redactor()
    recorder.model_is(config.model)
    if past is not None:
        return
    recorder.added(transcript.history, "given")
    context = transcript.context
    if len(context) != len(transcript) or any(
        sent is not message for sent, message in zip(context, transcript.history, strict=True)
    ):
        recorder.context_replaced(context, None)
    recorder.state_is(state)
