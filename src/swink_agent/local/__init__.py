"""The on-device model: GGUF files run by llama.cpp, no key and no account.

    stream.py    LocalStreamFn: the stream function            presets.py   models that are known by name
    store.py     ModelStore: files on this machine             sources.py   where they come from
    worker.py    the worker process, seen from outside         _worker.py, _llama.py   and from inside
    prompt.py    the words of the prompt                       window.py    what gives way in a full window
    grammar.py, _gbnf.py   JSON Schema to GBNF                 _reply.py    generated text to events

Public names are loaded on use; nothing native is ever loaded into this process.
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
    """One vector per text, from a model on this machine. Raises `LocalModelError`."""
    from .stream import LocalStreamFn

    return await LocalStreamFn().embed(texts, model)
