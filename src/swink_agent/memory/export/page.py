"""The HTML export: one page that loads nothing and runs no scripts.

Owns the table of contents, the header with its totals, and the order of the parts; `rendering.frame` has the head with
the page's policy, `rendering.blocks` the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from swink_agent.core.types import AgentMessage, extract_text
from swink_agent.memory.sessions.info import SessionInfo
from swink_agent.rendering.blocks import anchor, conversation_html
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.frame import bar, head
from swink_agent.rendering.turns import Entry, Label, LabelAt, NoteAt, Prompt, cost_words, entries, moment, usage_words

from .markdown import title_of


def export_html(
    info: SessionInfo, messages: Sequence[AgentMessage], *, labels: Sequence[LabelAt] = (), notes: Sequence[NoteAt] = ()
) -> str:
    """The session as one self-contained page."""
    out = [head(title_of(info), skip="session")]
    shown = list(entries(messages, labels, notes))
    contents = _contents(shown)
    out.append(bar(has_contents=bool(contents)))
    out.append(f'<div class="page{"" if contents else " alone"}">\n{contents}')
    out.append('<main id="session">\n')
    out.append(_header(info))
    conversation_html(shown, out, model=str(info.model or ""))
    if not shown:
        out.append('<p class="empty">This session has no messages.</p>\n')
    out.append("</main>\n</div>\n</body>\n</html>\n")
    return "".join(out)


# -- the frame -----------------------------------------------------------------------------------------------


def _contents(shown: Sequence[Entry]) -> str:
    lines: list[str] = []
    for entry in shown:
        if isinstance(entry, Prompt):
            words = one_line(extract_text(entry.message.content), 90) or "(no text)"
            lines.append(f'<li><a href="#{anchor(entry.position)}"><bdi>{escape(words)}</bdi></a></li>\n')
        elif isinstance(entry, Label):
            lines.append(f'<li class="label"><bdi>{escape(one_line(entry.text, 60))}</bdi></li>\n')
    if len(lines) < 2:
        return ""
    return f'<nav class="contents" aria-label="Contents"><h2>Contents</h2>\n<ol>\n{"".join(lines)}</ol></nav>\n'


def _header(info: SessionInfo) -> str:
    model = "" if info.model is None else str(info.model)
    if info.model is not None and info.model.thinking_level != "off":
        model += f", thinking {info.model.thinking_level.value.replace('_', ' ')}"
    facts = [
        ("Model", model),
        ("Folder", info.cwd),
        ("Started", moment(info.created) if info.created else ""),
        ("Last change", moment(info.updated) if info.updated else ""),
        ("Messages", f"{info.messages:,}"),
        ("Tokens", usage_words(info.usage).removesuffix(" tokens")),
        ("Cost", cost_words(info.cost)),
        ("Forked from", info.parent or ""),
        ("Session", info.id),
    ]
    shown = [(name, escape(one_line(value, 400))) for name, value in facts if value]
    rows = "".join(f"<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>\n" for name, value in shown)
    out = [f'<header class="session">\n<h1 dir="auto">{escape(title_of(info))}</h1>\n<dl>\n{rows}</dl>\n']
    if info.problems:
        problems = "".join(f'<li dir="auto">{escape(visible(problem))}</li>' for problem in info.problems)
        out.append(
            '<aside class="problems"><strong>Problems with this session&#x27;s file</strong>'
            f"<ul>{problems}</ul></aside>\n"
        )
    out.append("</header>\n")
    return "".join(out)
