"""Uses policies: small objects that watch a run at four points and can stop it, add messages or skip a call."""

from __future__ import annotations

import asyncio

from swink_agent import Agent, Inject, PolicyContext, PreDispatchContext, Skip, Stop, tool
from swink_agent.testing import call, scripted, text


@tool
async def fetch(url: str) -> str:
    """Fetches a page."""
    return f"contents of {url}"


class MaxTurns:
    """Stops a run that takes too many turns."""

    def __init__(self, most: int) -> None:
        self.most = most

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        return Stop(f"{self.most} turns are enough") if ctx.turn_index >= self.most else None


class OnlyHttps:
    """Skips calls for local files, and changes http addresses to https."""

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        url = ctx.arguments.get("url", "")
        if url.startswith("file:"):
            return Skip("local files are off limits")
        if url.startswith("http:"):
            ctx.arguments = {"url": url.replace("http:", "https:", 1)}
        return None


class AskForSources:
    """Asks the model for its source, if its answer does not name one."""

    async def post_turn(self, ctx: PolicyContext) -> Inject | None:
        if ctx.message is None or ctx.message.tool_calls or ctx.turn_index >= 3:
            return None
        return None if "source" in ctx.message.text else Inject("Name your source.")


MODEL = scripted(
    [call("fetch", url="http://example.org"), call("fetch", url="file:///etc/passwd")],
    text("It says something."),
    text("It says something (source: example.org)."),
)


async def main() -> None:
    policies = [MaxTurns(5), OnlyHttps(), AskForSources()]
    agent = Agent("scripted:demo", tools=[fetch], policies=policies, stream_fn=MODEL)
    result = await agent.prompt("What does example.org say?")
    for message in result.messages:
        print(message)
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
