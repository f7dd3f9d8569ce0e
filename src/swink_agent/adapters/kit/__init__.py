"""The kit that adapters are made of, for a provider of your own: docs/providers.md builds one with it.

    http.py         HttpStreamFn: the life of a call                 transport.py  HTTP, with a limit on everything
    keyed.py        KeyedStreamFn: the same, with address and key    errors.py     what a provider's error means
    frames.py       a body cut into frames                           documents.py  a frame as a typed value
    reply.py        ReplyWriter: events that are always in order     outgoing.py   what can be sent of a conversation
    bodies.py       request bodies, encoded once                     images.py     pictures as data, or a note instead

What users of finished adapters need too (`Limits`, `Transport`, `AiohttpTransport`, `TransportError`, `ModelInfo`) is
in `swink_agent.adapters`.
"""

from swink_agent.core.providers import ProviderDescription
from swink_agent.core.stream import prompt_text
from swink_agent.core.values.model_info import ModelCapabilities, ModelPrices, PriceTier, TokenPrices

from .bodies import EncodedMessages, json_array, json_object, short_id
from .documents import count, document, items, json_text, mapping, read, text
from .errors import classify, classify_error, retry_after
from .frames import (
    MOST_BYTES,
    AwsEventFrames,
    AwsMessage,
    FrameError,
    JsonArrayFrames,
    LineFrames,
    ShapeError,
    SseFrames,
)
from .http import HttpStreamFn, Parser, with_advice
from .images import MOST_IMAGE_BYTES, Note, Picture, image_url, picture
from .keyed import JSON_HEADERS, KeyedStreamFn
from .outgoing import OutgoingMessages, RequestError
from .reply import ReplyWriter
from .transport import HttpRequest, HttpResponse

__all__ = [
    "JSON_HEADERS",
    "MOST_BYTES",
    "MOST_IMAGE_BYTES",
    "AwsEventFrames",
    "AwsMessage",
    "EncodedMessages",
    "FrameError",
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
    "ShapeError",
    "SseFrames",
    "TokenPrices",
    "classify",
    "classify_error",
    "count",
    "document",
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
