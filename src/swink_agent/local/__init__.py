"""The on-device model: GGUF files run by llama.cpp, no key and no account.

    stream.py        LocalStreamFn: the stream function
    loading.py       loads a model by its name into an engine
    weights/         the files: the named models, the store on this machine, the sources of downloads
    worker/          the process that holds a model: llama.cpp's HTTP server on a private socket, and its client
    prompt/          conversation and tools to text, JSON Schema to grammar (GBNF), generated text to events
    claim_check.py   ClaimCheck: a policy that sends unsupported answers of small models back

Public names are loaded on use. No native library is ever loaded into the agent's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.core.providers import ProviderDescription
from swink_agent.core.stream import StreamFn

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")


def _stream_fn(base_url: str | None) -> StreamFn:
    from .stream import LocalStreamFn

    return LocalStreamFn()


provider = ProviderDescription(name="local", make=_stream_fn, needs_key=False, is_local=True)
"""The provider of `local:NAME` and `local:/path/model.gguf`."""


async def embed(texts: list[str], model: str | None = None) -> list[list[float]]:
    """Returns one vector per text, from a model on this machine. Raises `LocalModelError`."""
    from .stream import LocalStreamFn

    return await LocalStreamFn().embed(texts, model)
