"""MCP servers written by hand that may lie, flood, hang and crash: raw JSON-RPC over stdio, in a child process.

A test gives the lines that differ from a decent server. They see `say`, `fail`, `tools`, and may define `on_list`,
`on_call`, `on_initialize` and `on_other`.
"""

from __future__ import annotations

import sys
from typing import Any

from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.mcp import McpServer, McpTool

_BEFORE = """
import json, os, sys, time

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def fail(id, code, text):
    say(id=id, error={"code": code, "message": text})

def text(id, *texts, **more):
    say(id=id, result={"content": [{"type": "text", "text": one} for one in texts], **more})

def tool(name, schema=None, **more):
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema or {"type": "object"}, **more}

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

tools = [tool("echo", {"type": "object", "properties": {"text": {"type": "string"}}})]

def on_initialize(id, params):
    capabilities = {"tools": {"listChanged": True}}
    say(id=id, result={"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                       "serverInfo": {"name": "raw", "version": "1"}})

def on_list(id, params):
    say(id=id, result={"tools": tools})

def on_call(id, name, arguments, meta):
    text(id, arguments.get("text", name))

def on_other(message):
    pass
"""
_AFTER = """
while (message := hear()) is not None:
    params = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            on_initialize(message["id"], params)
        case "tools/list":
            on_list(message["id"], params)
        case "tools/call":
            on_call(message["id"], params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        case _:
            on_other(message)
"""


def program(lines: str = "") -> str:
    """The source of a server."""
    return f"{_BEFORE}\n{lines}\n{_AFTER}"


def raw_server(lines: str = "", **options: Any) -> McpServer:
    """A server that runs unconfined, which starts sooner; `sandbox` may say otherwise."""
    options = {"name": "raw", "sandbox": "off", **options}
    return McpServer.stdio(sys.executable, "-I", "-S", "-c", program(lines), **options)


def named(server: McpServer, name: str) -> McpTool:
    """The server's tool with that true name."""
    [found] = server.tools(only=[name])
    return found


async def call(server: McpServer, name: str, **arguments: Any) -> AgentToolResult:
    """The result of a call outside of a run, with errors as results."""
    from swink_agent.core.tool import error_result

    try:
        return await named(server, name).execute(arguments, ToolContext())
    except Exception as error:
        return error_result(error)
