"""The frame of every page, the list of sessions, the elements around a conversation, and tables.

Owns the elements of the page and their accessible names. Text of sessions is escaped here or by `rendering`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from swink_agent.app.runs.telling import number_of
from swink_agent.core.types import ThinkingLevel
from swink_agent.memory import SessionInfo
from swink_agent.rendering.blocks import time_html
from swink_agent.rendering.characters import one_line
from swink_agent.rendering.frame import bar, scrolled_table

_PARTS = (("sessions", "", "Sessions"), ("runs", "runs", "Runs"), ("evals", "evals", "Evaluations"))
ACCEPTED = "image/png,image/jpeg,image/gif,image/webp,application/pdf"


def base_of(request: web.Request, path: str) -> str:
    """Returns the path of the first page, with the prefix of the request's path."""
    return request.path.removesuffix(path).rstrip("/") + "/"


def html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html", charset="utf-8")


def page_html(base: str, title: str, body: str, *, part: str = "", kind: str = "", is_plain: bool = False) -> str:
    """Returns a whole page. `base` is the path of the first page; `part` is the current entry of the navigation."""
    links = "".join(
        f'<li><a href="{base}{path}"{" aria-current=page" if name == part else ""}>{words}</a></li>'
        for name, path, words in _PARTS
    )
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="robots" content="noindex">\n<title>{escape(title)}</title>\n'
    )
    if is_plain:
        return f'{head}<meta name="color-scheme" content="light dark">\n</head>\n<body>{body}</body>\n</html>\n'
    return (
        f'{head}<link rel="stylesheet" href="{base}static/page.css">\n<link rel="icon" href="data:,">\n'
        f'<script src="{base}static/stream.js" defer></script>\n<script src="{base}static/page.js" defer></script>\n'
        f'</head>\n<body class="app {kind}" data-base="{base}">\n'
        f'<a class="skip" href="#main">Skip to the content</a>\n<header class="top">'
        f'<nav aria-label="Main"><ul>{links}</ul></nav>{bar(has_contents=False)}</header>\n{body}\n</body>\n</html>\n'
    )


# -- sessions ------------------------------------------------------------------------------------------------


def sidebar_html(listed: str, position: int) -> str:
    """Returns the sidebar with the list. `position` is the last change of the list that `listed` includes."""
    return (
        '<aside class="side" aria-label="All sessions"><div class="tools">'
        '<input type="search" id="search" aria-label="Search sessions" placeholder="Search sessions" '
        'autocomplete="off" spellcheck="false">'
        '<button type="button" id="new" class="main">New session</button></div>\n'
        f'<ul id="sessions" aria-label="Sessions" role="list" data-position="{position}">{listed}</ul>\n'
        '<div role="menu" id="menu" hidden>'
        '<button type="button" role="menuitem" tabindex="-1" data-do="rename">Rename</button>'
        '<button type="button" role="menuitem" tabindex="-1" data-do="fork">Fork</button>'
        '<a role="menuitem" tabindex="-1" data-do="export" href="#" download>Export</a>'
        '<button type="button" role="menuitem" tabindex="-1" data-do="delete">Delete</button></div>\n</aside>\n'
    )


def _title(info: SessionInfo) -> str:
    return one_line(info.title, 160) or "Untitled"


def row_html(base: str, info: SessionInfo, state: str, snippet: str = "", *, is_current: bool = False) -> str:
    """Returns an item of the list. `state` is the session's current state."""
    title = escape(_title(info))
    here = " aria-current=page" if is_current else ""
    when = f"{time_html(info.updated)} · {number_of(info.messages, 'message')}"
    about = escape(one_line(snippet, 160)) if snippet else when
    fork = "fork · " if info.parent is not None else ""
    word = escape(state)
    doing = f'<span class="badge {word}"{" hidden" if state == "idle" else ""}>{word}</span>'
    return (
        f'<li data-session="{escape(info.id)}" data-title="{title}">'
        f'<a href="{base}sessions/{quote(info.id)}"{here}><bdi class="what">{title}</bdi></a>'
        f'<span class="quiet">{doing}<bdi>{fork}{about}</bdi></span>'
        f'<button type="button" class="dots" aria-haspopup="menu" aria-expanded="false" '
        f'aria-label="Actions for {title}"><span aria-hidden="true">⋯</span></button></li>\n'
    )


def listed_html(
    base: str,
    infos: Sequence[SessionInfo],
    states: Callable[[str], str],
    snippets: Mapping[str, str],
    current: str = "",
    more: str = "",
) -> str:
    """Returns the items of the list. `more` is the session after which the list continues, or ""."""
    out = [
        row_html(base, info, states(info.id), snippets.get(info.id, ""), is_current=info.id == current)
        for info in infos
    ]
    if more:
        out.append(f'<li class="more"><button type="button" data-more="{escape(more)}">More sessions</button></li>\n')
    if not infos:
        out.append('<li class="empty">There are no sessions here.</li>\n')
    return "".join(out)


DIALOGS = (
    '<dialog id="rename" aria-labelledby="rename-t"><form method="dialog"><h2 id="rename-t">Rename session</h2>'
    '<label>Title <input name="title" maxlength="1000" autocomplete="off"></label>'
    '<p class="row"><button value="save" class="main">Save</button>'
    '<button value="" formnovalidate>Cancel</button></p></form></dialog>\n'
    '<dialog id="delete" aria-labelledby="delete-t"><form method="dialog"><h2 id="delete-t">Delete session</h2>'
    '<p><bdi class="what"></bdi> is deleted permanently.</p>'
    '<p class="row"><button value="delete" class="danger">Delete</button><button value="">Cancel</button></p>'
    "</form></dialog>\n"
)
ALERT = (
    '<div class="alerts"><div role="alert" id="alert"></div>'
    '<button type="button" id="dismiss" hidden>Dismiss</button></div>\n'
)


def home_html(base: str, side: str) -> str:
    body = (
        f'<div class="columns">{side}<main id="main" class="home"><h1>Sessions</h1>\n'
        '<p class="quiet">Choose a session, or begin a new one.</p></main></div>\n'
        f"{ALERT}{DIALOGS}"
    )
    return page_html(base, "Sessions", body, part="sessions", kind="is-home")


def session_html(
    base: str,
    info: SessionInfo,
    side: str,
    conversation: str,
    questions: str,
    state: Mapping[str, Any],
    *,
    position: int,
    first: int,
    commands: Sequence[str],
) -> str:
    """Returns the page of a session. `first` is the number of messages that are not on it yet."""
    title = escape(_title(info))
    known = escape(msgspec.json.encode(list(commands)).decode())
    model = escape(str(state["model"] or info.model or ""))
    levels = "".join(
        f'<option value="{level}"{" selected" if level == state["thinking"] else ""}>{level.replace("_", " ")}</option>'
        for level in [str(each.value) for each in ThinkingLevel]
    )
    run = escape(str(state["state"]))
    hidden = "" if first else " hidden"
    earlier = f'<button type="button" id="earlier" data-before="{first}"{hidden}>Earlier messages</button>'
    body = (
        f'<div class="columns">{side}'
        f'<main id="main" class="session" data-session="{escape(info.id)}" data-position="{position}" '
        f'data-commands="{known}" data-state="{run}">\n'
        f'<header class="about"><h1 dir="auto" id="title">{title}</h1><ul class="states">'
        f'<li class="run"><span role="status" aria-label="Run" id="run">{run}</span></li>'
        '<li><span role="status" aria-label="Connection" id="connection">reconnecting</span></li>'
        f'<li><span role="status" aria-label="Cost" id="cost">{escape(str(state["cost"]))}</span></li>'
        f'<li><span class="quiet" aria-hidden="true">Context</span> <meter id="context" aria-label="Context" min="0" '
        f'max="1" high="0.8" value="{state["fill"]}">{round(float(state["fill"]) * 100)} %</meter></li></ul></header>\n'
        f'<section role="log" aria-label="Conversation" id="log" tabindex="0">{earlier}\n'
        f'<div id="messages">{conversation}</div></section>\n'
        f'<div class="below"><button type="button" id="newest" hidden>Newest message</button></div>\n'
        f'<div id="questions">{questions}</div>\n{ALERT}'
        '<form id="composer"><ul id="queue" aria-label="Queued messages" hidden></ul>'
        '<ul id="attached" aria-label="Attached files" hidden></ul>'
        '<textarea id="message" aria-label="Message" rows="2" placeholder="Message" dir="auto" autofocus></textarea>\n'
        '<div class="row"><label class="attach"><span>Attach files</span>'
        f'<input type="file" id="files" aria-label="Attach files" multiple accept="{ACCEPTED}"></label>'
        f'<label>Model <select id="model" aria-label="Model">'
        f'<option value="{model}" selected>{model or "usual"}</option></select></label>'
        f'<label>Thinking <select id="thinking" aria-label="Thinking">{levels}</select></label>'
        f'<label><input type="checkbox" id="plan"{" checked" if state["plan"] else ""}> Plan mode</label>'
        '<span id="progress" class="quiet"></span><span class="buttons">'
        '<button type="button" id="stop" class="danger">Stop</button><button type="button" id="queue-it">Queue</button>'
        '<button type="button" id="steer" class="main">Steer</button><button id="send" class="main">Send</button>'
        f"</span></div></form>\n</main></div>\n{DIALOGS}"
    )
    return page_html(base, _title(info), body, part="sessions", kind="is-session")


# -- tables -----------------------------------------------------------------------------------------------------


def cell(text: str, *, most: int = 200) -> str:
    return f"<bdi>{escape(one_line(text, most))}</bdi>"


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{cell(text)}</a>'


def table_html(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    """Returns a table whose cells are HTML. It can be scrolled with the keyboard."""
    if not rows:
        return f'<p class="empty">{escape(empty)}</p>\n'
    head = "".join([f'<th scope="col">{escape(each)}</th>' for each in heads])
    body = "".join([f"<tr>{''.join([f'<td>{each}</td>' for each in row])}</tr>\n" for row in rows])
    return f"{scrolled_table(name, head, body)}\n"
