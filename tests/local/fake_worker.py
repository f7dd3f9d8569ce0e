"""A worker process without a model: `python fake_worker.py FD`. The prompt decides what it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swink_agent.local.worker.engine import Chunk, Completion, Finished, ModelInfo, Overflowed, Piece, Progress
from swink_agent.local.worker.main import main


class FakeModel:
    def __init__(self, settings: Any) -> None:
        if "broken" in settings.path:
            sys.stderr.write("bad magic\n")
            raise RuntimeError("not a model")
        if "slow" in settings.path:
            time.sleep(30)
        self.info = ModelInfo(settings.context_length, "<|im_start|>")
        self.stopped = Path(settings.state_dir) / "stopped"

    def complete(self, request: Completion, emit: Callable[[Chunk], bool]) -> None:
        match request.prompt:
            case "die":
                sys.stderr.write("the last words\n")
                sys.stderr.flush()
                emit(Piece("I "))
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(0)
            case "wait":
                while emit(Progress(1, 2)):
                    time.sleep(0.005)
                self.stopped.write_text("yes")
            case "environment":
                emit(Piece(" ".join(sorted(os.environ))))
                emit(Finished(False))
            case "long":
                emit(Overflowed(9_000, 2_048))
            case "of another version":
                chunk: Any = {"type": "Unheard", "of": 1}
                emit(chunk)
            case "fail":
                raise RuntimeError("the grammar cannot be parsed")
            case _:
                for word in request.prompt.split():
                    emit(Piece(word))
                emit(Finished(False, 3, 1, 2))

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        return repr(messages)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(len(text)), float(os.getpid())] for text in texts]

    def close(self) -> None: ...


if __name__ == "__main__":
    main(FakeModel)
