"""The parts that strict fakes are made of, also for a fake of your own API.

api = FakeApi(
    path=re.compile(r"/v1/talk"), content_type="application/x-ndjson",
    problems=problems, refusal=needs_bearer, error=error, stream=stream,
)
async with FakeProvider(api, ["hello"]) as fake:
    ...

    api.py      FakeApi: the description of an API             checks.py   checks for validators
    replies.py  a scripted reply, its blocks and its frames    chat.py     chat completions, a base for subclasses
"""

from .api import FakeApi, needs_bearer
from .chat import ChatChunks, ChatRules
from .checks import (
    TOOL_NAME,
    Shape,
    Turn,
    check_json_schema,
    check_lengths,
    check_names,
    check_pairs,
    items,
    mapping,
    objects,
    string,
    subschemas,
)
from .replies import Block, aws_event, blocks, is_signed, json_bytes, json_line, new_id, pieces, sign, sse

__all__ = [
    "TOOL_NAME",
    "Block",
    "ChatChunks",
    "ChatRules",
    "FakeApi",
    "Shape",
    "Turn",
    "aws_event",
    "blocks",
    "check_json_schema",
    "check_lengths",
    "check_names",
    "check_pairs",
    "is_signed",
    "items",
    "json_bytes",
    "json_line",
    "mapping",
    "needs_bearer",
    "new_id",
    "objects",
    "pieces",
    "sign",
    "sse",
    "string",
    "subschemas",
]
