"""Asks before a tool runs; the answer can change the arguments."""

from __future__ import annotations

import asyncio

from swink_agent import Agent, Approve, ApproveWith, ProposedCall, Reject, ToolResultMessage, extract_text, tool
from swink_agent.testing import call, scripted, text


@tool(requires_approval=True)
async def send_mail(to: str, body: str) -> str:
    """Sends a mail."""
    return f"sent to {to}: {body}"


async def approve(request: ProposedCall) -> Approve | ApproveWith | Reject:
    """Decides as a person at a dialog would. Anything except a clear yes, also an exception, means no."""
    if request.arguments["to"].endswith("@everyone"):
        return Reject("not to everyone")
    if "!" in request.arguments["body"]:
        return ApproveWith({**request.arguments, "body": request.arguments["body"].replace("!", ".")})
    return Approve()


MODEL = scripted(
    [
        call("send_mail", to="ada@example.org", body="Hello"),
        call("send_mail", to="all@everyone", body="Hello all"),
        call("send_mail", to="bob@example.org", body="Hurry!"),
    ],
    text("Two of the three are out."),
)


async def main() -> None:
    agent = Agent("scripted:demo", tools=[send_mail], approve=approve, stream_fn=MODEL)
    result = await agent.prompt("Write to Ada, to everyone, and to Bob.")
    for message in result.messages:
        if isinstance(message, ToolResultMessage):
            print(extract_text(message.content))
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
