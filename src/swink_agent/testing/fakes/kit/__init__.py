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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
