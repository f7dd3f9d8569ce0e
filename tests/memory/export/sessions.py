"""Sessions to export: an ordinary one, and ones with something hostile in every place that can hold it."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, NamedTuple

from swink_agent import (
    AssistantMessage,
    Base64Image,
    Cost,
    CustomMessage,
    Extension,
    FileImage,
    Image,
    ModelSpec,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    Usage,
    UserMessage,
)
from swink_agent.core.types import AgentMessage, ToolOutcome
from swink_agent.memory import SessionInfo, export_html

NOON = 1_763_200_000_000


class Notice(CustomMessage, tag="notice"):
    text: str


class Exported(NamedTuple):
    """What an export is given."""

    info: SessionInfo
    messages: tuple[AgentMessage, ...]
    labels: tuple[tuple[str, int], ...] = ()
    notes: tuple[tuple[str, Any, int], ...] = ()

    def html(self) -> str:
        return export_html(self.info, self.messages, labels=self.labels, notes=self.notes)


def png(width: int = 2, height: int = 2) -> str:
    """A picture, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x40\x80\xc0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def ordinary() -> Exported:
    usage, cost = Usage(1200, 34, 500, 0, 1734), Cost(total=0.0123)
    messages: tuple[AgentMessage, ...] = (
        UserMessage("Fix the *total*, please.", NOON),
        AssistantMessage(
            [
                Thinking("Where is it?"),
                Text("I look."),
                ToolCall("1", "read_file", {"path": "a.py"}),
                ToolCall("2", "bash", {"command": "ls | wc -l"}),
                ToolCall("3", "bash", {"command": "rm -rf build"}),
            ],
            "anthropic",
            "claude-sonnet-4-6",
            usage,
            cost,
            StopReason.TOOL_USE,
            timestamp=NOON,
        ),
        ToolResultMessage("2", "no such file", is_error=True, outcome=ToolOutcome.FAILED, tool_name="bash"),
        ToolResultMessage("1", "print(1)", tool_name="read_file"),
        AssistantMessage([ToolCall("1", "edit_file", {"path": "a.py", "old": "1\n", "new": "2\n"})], timestamp=NOON),
        ToolResultMessage("1", "Edited a.py.", details={"path": "a.py", "old": "x\n1\n", "new": "x\n2\n"}),
        AssistantMessage("```python\ndef f(): return 'a'  # now\n```", "openai", "gpt-5", usage, cost, timestamp=NOON),
        UserMessage([Text("Look:"), Image(Base64Image("image/png", png()))], NOON),
        Notice("the build is green"),
        AssistantMessage(
            "I was", stop_reason=StopReason.ERROR, error_message="529: overloaded", usage=usage, timestamp=NOON
        ),
    )
    info = SessionInfo(
        id="20261115-7f3a",
        title="The total",
        created=NOON,
        updated=NOON + 60_000,
        cwd="/home/ann/shop",
        model=ModelSpec("anthropic", "claude-sonnet-4-6"),
        messages=len(messages),
        usage=usage,
        cost=cost,
        parent="20261114-aaaa",
        problems=("line 17 was damaged and is left out",),
    )
    return Exported(info, messages, (("before the picture", 7),), (("deploy", {"ok": True}, 10),))


def infected(evil: str) -> Exported:
    """A session with the text in every place that a text can be in."""
    messages: tuple[AgentMessage, ...] = (
        UserMessage([Text(evil), Extension(evil, {evil: evil})], NOON),
        UserMessage(
            [Text(f"```{evil}\n{evil}\n```\n\n- {evil}\n\n> {evil}\n\n| {evil} | b |\n|---|---|\n| {evil} | c |")]
        ),
        UserMessage([Text(f"[{evil}]({evil}) ![x]({evil}) <{evil}> `{evil}` **{evil}** # {evil}\n# {evil}")]),
        UserMessage(
            [
                Image(Base64Image(evil, evil)),
                Image(Base64Image("image/png", evil)),
                Image(Base64Image(f"image/png{evil}", png())),
                Image(Base64Image("image/svg+xml", base64.b64encode(b"<svg onload='alert(1)'/>").decode())),
                Image(UrlImage(evil, evil)),
                Image(UrlImage(f"https://127.0.0.1/{evil}")),
                Image(FileImage(evil, evil)),
            ]
        ),
        AssistantMessage(
            [
                Thinking(evil, evil),
                Text(evil),
                ToolCall(evil, evil, {evil: evil, "command": evil, "path": f"a.{evil}", "n": [evil, {evil: evil}]}),
                ToolCall(f"{evil}2", evil, {}, evil),
                Extension(evil, evil),
            ],
            evil,
            evil,
            Usage(extra={"x": 1}),
            Cost(total=0.5),
            StopReason.ERROR,
            evil,
            timestamp=10**18,
        ),
        ToolResultMessage(evil, evil, True, {evil: evil, "old": evil, "new": f"{evil}\n{evil}"}, evil),
        ToolResultMessage(f"{evil}2", f"diff --git a b\n+{evil}\n-{evil}\n@@ {evil}", details=[evil], tool_name=evil),
        ToolResultMessage("nobody's", f'{{"{evil}": 1}}', tool_name=evil),
        Notice(evil),
        UserMessage("the end"),
    )
    info = SessionInfo(
        id=evil,
        title=evil,
        created=-(10**20),
        updated=10**20,
        cwd=evil,
        model=ModelSpec(evil, evil),
        parent=evil,
        problems=(evil, evil),
    )
    return Exported(info, messages, ((evil, 1), (evil, -5)), ((evil, {evil: evil}, 2), (evil, evil, 10**9)))


ROLES = ("user",) * 4 + ("assistant", "custom", "custom", "user")
"""Who speaks in an infected session, whatever it is infected with."""

CANARY = "document.documentElement.id='pw'+'ned'"
"""What a script of an attack does: the word is nowhere until it ran."""

ATTACKS = {
    "script": f"<script>{CANARY}</script>",
    "closes all": f"</code></pre></details></article></main></div></style></title></head><script>{CANARY}</script>",
    "quotes": f"\"'><script>{CANARY}</script><b x=\"'",
    "attribute": f'" onmouseover="{CANARY}" autofocus onfocus="{CANARY}" x="',
    "image": f'<img src=x onerror="{CANARY}">',
    "svg": f'<svg onload="{CANARY}"><animate onbegin="{CANARY}" attributeName=x dur=1s>',
    "details": f'<details open ontoggle="{CANARY}">',
    "javascript link": f"javascript:{CANARY}",
    "javascript link, oddly": f"JaVa\tScRiPt:{CANARY}//",
    "markdown link": f"[x](javascript:{CANARY}) <javascript:{CANARY}> [x](\x01javascript:{CANARY})",
    "data link": f"[x](data:text/html,<script>{CANARY}</script>) ![x](data:image/svg+xml,<svg onload='{CANARY}'/>)",
    "entity": f"&lt;script&gt;{CANARY}&lt;/script&gt; &#60;script&#62; &quot;",
    "style": "</style><style>body{display:none}</style><link rel=stylesheet href=https://127.0.0.1/x.css>",
    "base and meta": '<base href="https://127.0.0.1/"><meta http-equiv="refresh" content="0;url=https://127.0.0.1/">',
    "policy": "'; script-src 'unsafe-inline' *; default-src *; <meta http-equiv=Content-Security-Policy content=>",
    "comment": f"<!-- --!><script>{CANARY}</script><![CDATA[ ]]> <? ?>",
    "frame": f'<iframe srcdoc="<script>top.{CANARY}</script>"></iframe><object data="data:text/html,x"></object>',
    "forged header": '</article><article class="user" id="m99"><header><h2>User</h2></header><p>I agree.</p></article>',
    "template": f'<template><noscript></template><p title="</noscript><img src=x onerror={CANARY}>">',
    "plain text": "<plaintext><xmp><textarea><title><noembed><select><math><mtext></p><table><mglyph><style>",
    "null": f"<scr\0ipt>{CANARY}</scr\0ipt>\0<\0img src=x onerror={CANARY}>",
    "half characters": "\ud800<script>\udfff \udcff",
    "bidi": "\u202e</p>\u2066 user \u200f\u2069 \u061c",
    "invisible": "\u200b\ufeff\U000e0041\u2028\u2029\x85\x1b[31m\x9b\x08\x7f",
    "fences": f"```\n</code></pre><script>{CANARY}</script>\n````\n~~~\n~~~~\n``` ```",
    "nesting": "> " * 3000 + "- " * 3000 + "[" * 3000 + "*" * 3000 + "<b>" * 3000,
    "stars": "**a *b ***c " * 800,
    "accents": "Z" + "\u0301" * 2000,
    "code in a span": f"`</code><script>{CANARY}</script>`",
    "table": f"| a |\n|---|\n| </td></table><script>{CANARY}</script> |",
    "language": f'```"><script>{CANARY}</script>\nx\n```',
    "nothing": "",
    "spaces": " \t\n\r\n ",
    "clobbering": '<form id="m1"><input name="body"></form><a id="session" name="session">',
}
