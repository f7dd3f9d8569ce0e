"""The parts that adapters are made of, also for your own provider: docs/providers.md builds one with them.

    http.py         HttpStreamFn: the life of a call                 transport.py  HTTP, with a limit on everything
    keyed.py        KeyedStreamFn: the same, with address and key    errors.py     classifies a provider's errors
    frames.py       divides a body into frames; FrameParser          documents.py  decodes a frame to a typed value
    bodies.py       request bodies, encoded once                     outgoing.py   prepares messages for a request
    schemas.py      SchemaSubset: a JSON Schema for the reply        images.py     files as data, or a note instead
    searches.py     Sources of a provider's web search

Names that users of finished adapters need too are in `swink_agent.adapters`: `Limits`, `Transport`,
`AiohttpTransport`, `TransportError`, `ModelInfo`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
