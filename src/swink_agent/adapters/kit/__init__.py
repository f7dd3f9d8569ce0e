"""The parts that adapters are made of, also for your own provider: docs/providers.md builds one with them.

    http.py         HttpStreamFn: the life of a call                 transport.py  HTTP, with a limit on everything
    keyed.py        KeyedStreamFn: the same, with address and key    errors.py     what a provider's error means
    frames.py       divides a body into frames; FrameParser          documents.py  decodes a frame to a typed value
    bodies.py       request bodies, encoded once                     outgoing.py   prepares messages for a request
    schemas.py      SchemaSubset: a JSON Schema for the reply        images.py     files as data, or a note instead
    searches.py     Sources of a provider's web search

`swink_agent.adapters` has what users of finished adapters need as well: `Limits`, `Transport`, `AiohttpTransport`,
`TransportError`, `ModelInfo`.
"""

from swink_agent.core.providers import ProviderDescription
from swink_agent.core.stream import prompt_text
from swink_agent.core.stream_writer import ReplyWriter
from swink_agent.core.values.model_info import ModelCapabilities, ModelPrices, PriceTier, TokenPrices

from .bodies import EncodedMessages, json_array, json_object, short_id
from .documents import count, document, items, json_text, mapping, read, text
from .errors import classify, classify_error, retry_after
from .frames import (
    MOST_BYTES,
    AwsEventFrames,
    AwsMessage,
    FrameError,
    FrameParser,
    JsonArrayFrames,
    LineFrames,
    ShapeError,
    SseFrames,
)
from .http import HttpStreamFn, Parser, with_advice
from .images import MOST_IMAGE_BYTES, Note, Picture, document_data, document_url, file_name, image_url, picture
from .keyed import JSON_HEADERS, KeyedStreamFn
from .outgoing import OutgoingMessages, RequestError
from .schemas import SchemaSubset
from .searches import Sources
from .transport import HttpRequest, HttpResponse

__all__ = [
    "JSON_HEADERS",
    "MOST_BYTES",
    "MOST_IMAGE_BYTES",
    "AwsEventFrames",
    "AwsMessage",
    "EncodedMessages",
    "FrameError",
    "FrameParser",
    "HttpRequest",
    "HttpResponse",
    "HttpStreamFn",
    "JsonArrayFrames",
    "KeyedStreamFn",
    "LineFrames",
    "ModelCapabilities",
    "ModelPrices",
    "Note",
    "OutgoingMessages",
    "Parser",
    "Picture",
    "PriceTier",
    "ProviderDescription",
    "ReplyWriter",
    "RequestError",
    "SchemaSubset",
    "ShapeError",
    "Sources",
    "SseFrames",
    "TokenPrices",
    "classify",
    "classify_error",
    "count",
    "document",
    "document_data",
    "document_url",
    "file_name",
    "image_url",
    "items",
    "json_array",
    "json_object",
    "json_text",
    "mapping",
    "picture",
    "prompt_text",
    "read",
    "retry_after",
    "short_id",
    "text",
    "with_advice",
]
