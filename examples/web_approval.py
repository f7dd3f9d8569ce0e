"""Approves calls on a web page, also after the server was restarted.

If a call needs approval, the run ends and its session keeps the waiting call. The page lists such calls. An answer
continues the run, in any process that serves the page. Without arguments this program shows both sides: it starts the
server, sends a prompt, kills the server, starts another one, and answers.

    python examples/web_approval.py serve FOLDER PORT
"""

from __future__ import annotations

import asyncio
import html
import sys
import tempfile
from urllib.parse import quote

from aiohttp import ClientSession, web

from swink_agent import Agent, AssistantMessage, Defer, NotPending, Reject, ToolResultMessage, tool
from swink_agent.core.stream import StreamFn
from swink_agent.memory import JsonlSessionStore, SessionError
from swink_agent.testing import call, scripted, text


@tool(requires_approval=True)
def refund(order: int, amount: float) -> str:
    """Pays money back."""
    return f"paid {amount:.2f} back for order {order}"


def make_agent(stream_fn: StreamFn) -> Agent:
    """The agent of this shop. Every call that needs approval waits for the page."""
    return Agent("scripted:demo", tools=[refund], approve=lambda _: Defer("the shop decides"), stream_fn=stream_fn)


def make_app(store: JsonlSessionStore) -> web.Application:
    async def ask(request: web.Request) -> web.Response:
        """Starts a conversation. The script replaces a model."""
        agent = make_agent(scripted(call("refund", order=17, amount=20.0)))
        with store.create() as session:
            session.attach(agent)
            result = await agent.prompt(await request.text())
            return web.json_response({"session": session.id, "pending": [one.call_id for one in result.pending]})

    async def page(request: web.Request) -> web.Response:
        """Lists the waiting calls, read from the session files. Text of a model is escaped."""
        rows: list[str] = []
        for info in store.list():
            if info.pending:
                agent = make_agent(scripted())
                agent.messages = store.load(info.id).messages
                rows += [
                    f"<form method=post action='/sessions/{info.id}/{quote(one.call_id, safe='')}'>"
                    f"{html.escape(one.name)} {html.escape(str(one.arguments))}"
                    "<button name=answer value=yes>Approve</button><button name=answer value=no>Reject</button></form>"
                    for one in agent.pending
                ]
        return web.Response(text="<h1>Waiting</h1>" + "".join(rows or ["nothing"]), content_type="text/html")

    async def answer(request: web.Request) -> web.Response:
        """Continues the session. Only the first answer counts. The id of a call in a delegate has slashes."""
        form = await request.post()
        agent = make_agent(scripted(text("The customer has been told.")))
        try:
            with store.open(request.match_info["session"]) as session:
                session.attach(agent)
                said = True if form.get("answer") == "yes" else Reject("the shop said no")
                await agent.resume({request.match_info["call"]: said})
        except (NotPending, SessionError) as error:  # answered, in use by another answer, or gone
            raise web.HTTPConflict(text=str(error)) from error
        return web.Response(text="\n".join(_shown(message) for message in agent.messages[2:]))

    app = web.Application()
    app.add_routes([web.get("/", page), web.post("/ask", ask), web.post("/sessions/{session}/{call:.+}", answer)])
    return app


def _shown(message: object) -> str:
    if isinstance(message, (ToolResultMessage, AssistantMessage)):
        return "".join(getattr(block, "text", "") for block in message.content)
    return ""


async def serve(folder: str, port: int) -> None:
    """Serves on loopback until it is killed. A real page also checks who answers: see the guide on deferral."""
    runner = web.AppRunner(make_app(JsonlSessionStore(folder)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def start(folder: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "serve", folder, "0"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    return process, f"http://127.0.0.1:{port}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with ClientSession() as client:
            server, url = await start(folder)
            asked = await (await client.post(f"{url}/ask", data="Refund order 17")).json()
            print(f"waiting: {len(asked['pending'])} call")
            server.kill()  # as in a crash: nothing is shut down cleanly
            await server.wait()
            server, url = await start(folder)
            print("refund" in await (await client.get(url)).text())
            where = f"{url}/sessions/{asked['session']}/{asked['pending'][0]}"
            print(await (await client.post(where, data={"answer": "yes"})).text())
            print((await client.post(where, data={"answer": "yes"})).status, "for a second answer")
            server.kill()
            await server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
    else:
        asyncio.run(main())
