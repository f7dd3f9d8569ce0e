"""A worker process without a model: `python fake_llama.py SOCKET PARENT`. An HTTP server answers as llama.cpp's does.

A file of weights that is JSON after the letters GGUF has the replies, one per completion, the last one again and again.
Without one, the prompt decides. In the folder of states it writes the bodies of completions to `asked.jsonl`, a line
for each whose connection was closed before its end to `closed`, and what was done with states to `slots`.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from swink_agent.local.worker.main import main

PIECE = 3


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 50

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes no traceback about a client that has gone: llama.cpp's server does not either."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Model:
    def __init__(self, settings: Any) -> None:
        self.settings = settings
        text = Path(settings.path).read_text() if Path(settings.path).exists() else ""
        self.script: dict[str, Any] = json.loads(text.removeprefix("GGUF") or "{}")
        self.window: int = self.script.get("window", settings.context_length)
        self.replies: list[Any] = self.script.get("replies", [])
        self.is_loaded = False

    def reply(self) -> Any:
        """The next reply: also after a restart."""
        self.note("replied", "")
        count = len((Path(self.settings.state_dir) / "replied").read_text().splitlines())
        return self.replies[min(count, len(self.replies)) - 1]

    def note(self, name: str, line: str) -> None:
        with (Path(self.settings.state_dir) / name).open("a") as file:
            file.write(f"{line}\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/health":
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            self.answer(*((200, {"status": "ok"}) if self.model.is_loaded else (503, {"error": error})))
        else:
            template = self.model.script.get("template", "<|im_start|>")
            self.answer(200, {"default_generation_settings": {"n_ctx": self.model.window}, "chat_template": template})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/completions":
            self.model.note("asked.jsonl", json.dumps(body))
            self.complete(body)
        elif self.path == "/apply-template":
            said = "".join(f"[{message['role']}]{message['content']}" for message in body["messages"])
            self.answer(200, {"prompt": f"{said}[assistant]"})
        elif self.path == "/v1/embeddings":
            rows = [{"index": at, "embedding": [len(text), os.getpid()]} for at, text in enumerate(body["input"])]
            self.answer(200, {"data": rows[::-1]})
        else:
            self.slot(self.path.rpartition("=")[2], body["filename"])

    def slot(self, action: str, name: str) -> None:
        self.model.note("slots", action)
        file = Path(self.model.settings.state_dir) / name
        if action == "save" and not self.model.script.get("is_full"):
            file.write_text("state")
        is_done = file.exists() and file.read_text() == "state"
        self.answer(*((200, {}) if is_done else (400, {"error": {"message": f"cannot {action} {name}"}})))

    def answer(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(data)

    # -- completions -----------------------------------------------------------------------------------------

    def complete(self, body: dict[str, Any]) -> None:
        prompt = body["prompt"]
        tokens = len(prompt) // 4
        if tokens > self.model.window:
            return self.refuse_length(tokens, self.model.window)
        try:
            if body["n_predict"] == 0:
                self.write([{"read": tokens}, {"end": "length"}], tokens)
            elif self.model.replies:
                self.say(self.model.reply(), tokens)
            else:
                self.obey(prompt)
        except OSError:
            self.model.note("closed", prompt[-40:])

    def say(self, reply: Any, tokens: int) -> None:
        if isinstance(reply, str):
            pieces = [reply[start : start + PIECE] for start in range(0, len(reply), PIECE)]
            reply = [*pieces, {"end": "stop", "usage": [tokens, tokens // 2, len(pieces)]}]
        self.write([{"read": 0}, *reply], tokens)

    def obey(self, prompt: str) -> None:
        match prompt:
            case "die":
                sys.stderr.write("the last words\n")
                sys.stderr.flush()
                self.write(["I ", {"kill": signal.SIGKILL}])
            case "exit":
                os._exit(0)
            case "wait":
                self.write([{"wait": True}])
            case "environment":
                self.write([" ".join(sorted(os.environ)), {"end": "stop"}])
            case "long":
                self.refuse_length(9_000, 2_048)
            case "fail":
                self.answer(400, {"error": {"message": "failed to parse grammar", "type": "invalid_request_error"}})
            case "fail late":
                self.write(["I ", {"error": {"message": "no memory", "type": "server_error"}}])
            case "no json":
                self.send_error(500, "not from llama.cpp")
            case _:
                self.write([*prompt.split(), {"end": "stop", "usage": [3, 1, 2]}])

    def refuse_length(self, tokens: int, window: int) -> None:
        error = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window, "message": "long"}
        self.answer(400, {"error": error})

    def write(self, parts: list[Any], total: int = 2) -> None:
        """Writes events: a string is a piece, the others are named by their only or first key."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in parts:
            match part:
                case str():
                    self.event({"choices": [{"text": part, "finish_reason": None}]})
                case {"read": done}:
                    self.progress(done, total)
                case {"wait": _}:
                    while True:  # until the connection is closed
                        self.progress(1, total)
                        time.sleep(0.005)
                case {"kill": number}:
                    os.kill(os.getpid(), number)
                case {"end": reason}:
                    prompt, cached, output = part.get("usage", [0, 0, 0])
                    details = {"cached_tokens": cached}
                    usage = {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}
                    self.event({"choices": [{"text": "", "finish_reason": reason}], "usage": usage})
                case _:
                    self.event(part)
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def progress(self, done: int, total: int) -> None:
        progress = {"processed": done, "total": total, "cache": 0}
        self.event({"choices": [{"text": "", "finish_reason": None}], "prompt_progress": progress})

    def event(self, content: object) -> None:
        self.chunk(f"data: {json.dumps(content)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def serve(settings: Any, address: str) -> object:
    model = Model(settings)
    server = Server(address, type("Handler", (Handler,), {"model": model}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if Path(settings.path).name == "broken.gguf":
        sys.stderr.write("0.1 E gguf: bad magic\n0.2 I srv: cleaning up\n")
        raise RuntimeError("not a model")
    if Path(settings.path).name == "slow.gguf":
        time.sleep(30)
    model.is_loaded = True
    return server


if __name__ == "__main__":
    main(serve)
