"""Measures the cost of an adapter as ratios against bare aiohttp with msgspec: `python -m bench.adapters`.

    one stream          20,000 chunks of a chat completion, from loopback into an assembled message
    200 streams         at once on one event loop, per chunk, against one stream; and the memory that they need
    the request         the body of turn n + 1, against one whose messages were all encoded again

The server is a separate process, so that only the reading is measured.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec

from swink_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    CancellationToken,
    MessageAssembler,
    ModelSpec,
    StreamOptions,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.adapters import OpenAiStreamFn

MODEL = ModelSpec("openai", "gpt-bench")
CONTEXT = AgentContext("Be brief.", [UserMessage("go")])
CHUNKS = 20_000

SERVER = """
import asyncio, sys
chunks = int(sys.argv[1])
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\nconnection: close\\r\\n\\r\\n"
chunk = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-bench",'
chunk += b'"choices":[{"index":0,"delta":{"content":"word "},"logprobs":null,"finish_reason":null}]}\\n\\n'
end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\\n\\ndata: [DONE]\\n\\n'
async def serve(reader, writer):
    headers = await reader.readuntil(b"\\r\\n\\r\\n")
    length = [int(l.split(b":")[1]) for l in headers.split(b"\\r\\n") if l.lower().startswith(b"content-length")]
    await reader.readexactly(length[0])
    writer.write(head)
    for start in range(0, chunks, 20):
        writer.write(chunk * min(20, chunks - start))
        await writer.drain()
    writer.write(end)
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def serving(chunks: int) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(chunks)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


async def bare(url: str, chunks: int) -> None:
    """The least that can be done: read, split, decode, join."""
    decode = msgspec.json.Decoder().decode
    pieces: list[str] = []
    rest = b""
    async with aiohttp.ClientSession() as session, session.post(url, json={"stream": True}) as response:
        async for data in response.content.iter_any():
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    for choice in decode(line[6:])["choices"]:
                        pieces.append(choice["delta"].get("content") or "")
    assert len("".join(pieces)) == 5 * chunks


def adapter(url: str) -> Callable[[int], Awaitable[None]]:
    stream_fn = OpenAiStreamFn(url, "key")

    async def read(chunks: int) -> None:
        assembler = MessageAssembler(MODEL)
        async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken()):
            assembler.feed(event)
        assert len(assembler.message().text) == 5 * chunks

    return read


async def cpu(work: Callable[[], Awaitable[Any]], repeats: int = 5) -> float:
    await work()
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        await work()
        best = min(best, time.process_time() - start)
    return best


async def streams() -> None:
    with serving(CHUNKS) as url:
        read = adapter(url)
        yardstick = await cpu(lambda: bare(url, CHUNKS))
        ours = await cpu(lambda: read(CHUNKS))
    print(
        f"one stream, a chunk:  bare {yardstick / CHUNKS * 1e6:.2f} µs, ours {ours / yardstick:.2f} times (at most 2.5)"
    )
    many, chunks = 200, 500
    with serving(chunks) as url:
        read = adapter(url)
        one = await cpu(lambda: read(chunks), 20)

        async def all_at_once() -> None:
            await asyncio.gather(*[read(chunks) for _ in range(many)])

        together = await cpu(all_at_once, 3) / many
        tracemalloc.start()
        await all_at_once()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    print(
        f"200 streams, a chunk: {together / one:.2f} times one stream (at most 1.5), {peak / 1e6:.0f} MB (at most 100)"
    )


def request() -> None:
    """Turn after turn, the body of a growing conversation."""
    messages: list[AgentMessage] = []
    for turn in range(500):
        call = ToolCall(f"call_{turn}", "read", {"path": f"file_{turn}.py", "lines": [1, 200]})
        messages += [UserMessage(f"question {turn}"), AssistantMessage([call])]
        messages += [ToolResultMessage(call.id, "line of code\n" * 40), AssistantMessage("an answer " * 20)]
    stream_fn = OpenAiStreamFn("http://127.0.0.1:9", "key")
    fresh = AgentContext("Be brief.", messages)
    again = AgentContext("Be brief.", [*messages, UserMessage("next")])

    def once(context: AgentContext, function: OpenAiStreamFn) -> float:
        start = time.process_time()
        function.build(MODEL, context, StreamOptions())
        return time.process_time() - start

    first = min(once(fresh, OpenAiStreamFn("http://127.0.0.1:9", "key")) for _ in range(5))
    stream_fn.build(MODEL, fresh, StreamOptions())
    next_turn = min(once(again, stream_fn) for _ in range(5))
    print(f"the next request:     {next_turn / first:.2f} times one encoded from nothing, at 2,000 messages")


def main() -> None:
    asyncio.run(streams())
    request()


if __name__ == "__main__":
    main()
