"""A question as HTML: the call with its lines or its diff, and a button for every answer.

Owns these elements and their accessible names. `app.talk.questions` interprets the answers. Nothing of a call is cut:
it wraps and scrolls, and the buttons that allow it work once its beginning and its end (`data-edge`) were visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from swink_agent.rendering.characters import one_line, visible

from ..questions import Question, ShownLine

_SIGNS = {"added": ("ins", "+"), "removed": ("del", "-"), "context": ("", " "), "hunk": ("hunk", "")}
_REFUSALS = ("no", "later")
_LONGEST_LABEL = 10_000
_ALWAYS = ("session_tool", "session_prefix", "session_access", "always", "keep")


def question_html(question: Question) -> str:
    """Returns the dialog. It gets the focus, not one of its buttons, so that a key pressed too early does nothing."""
    place = f"q-{question.id}"
    is_call = question.kind == "call"
    title = f"Allow {one_line(question.name, 100)}?" if is_call else one_line(question.title, 300)
    count = f' <span class="quiet">{question.number} of {question.total}</span>' if question.total > 1 else ""
    out = [
        f'<section class="question" role="alertdialog" id="{place}" data-question="{escape(question.id)}" '
        f'tabindex="-1" aria-labelledby="{place}-t">\n'
        f'<header><h2 id="{place}-t" dir="auto">{escape(title)}</h2>{count}</header>\n'
        '<div class="call" role="group" aria-label="What it does" tabindex="0"><i data-edge></i>\n'
    ]
    out += [f'<p class="warning" dir="auto">{escape(visible(line))}</p>\n' for line in question.warnings]
    if question.why:
        out.append(f'<p class="why" dir="auto">{escape(visible(question.why))}</p>\n')
    is_change = any(line.kind in ("added", "removed") for line in question.lines) or bool(question.hunks)
    if is_call and question.title not in (question.name, f"{question.name} {question.path}"):
        out.append(f'<p class="title"><code>{escape(visible(question.title))}</code></p>\n')
    if question.path and is_change:
        _diff(question, out)
    elif question.lines:
        out.append(_code(question.lines))
    out += [f'<p class="quiet" dir="auto">{escape(visible(note))}</p>\n' for note in question.notes]
    out.append("<i data-edge></i></div>\n")
    _answers(question, place, out)
    out.append("</section>\n")
    return "".join(out)


def _diff(question: Question, out: list[str]) -> None:
    name, path = escape(one_line(question.path, 400)), escape(visible(question.path))
    out.append(f'<div class="changes" role="group" aria-label="Diff of {name}"><p class="path"><bdi>{path}</bdi></p>\n')
    for number, hunk in enumerate(question.hunks):
        out.append(
            f'<div class="hunk"><label><input type="checkbox" name="hunk" value="{number}" checked autocomplete="off"> '
            f"Change {number + 1}</label> <small class=quiet>of {len(question.hunks)}</small>\n"
            f"{_code(hunk.lines)}</div>\n"
        )
    if not question.hunks:
        out.append(_code(question.lines))
    out.append("</div>\n")


def _code(lines: Sequence[ShownLine]) -> str:
    shown: list[str] = []
    for line in lines:
        kind, sign = _SIGNS.get(line.kind, ("", ""))
        text = escape(f"{sign}{visible(line.text)}")
        shown.append(f'<span class="line {kind}">{text}\n</span>')
    return f'<pre class="diff"><code>{"".join(shown)}</code></pre>\n'


def _answers(question: Question, place: str, out: list[str]) -> None:
    out.append('<div class="answers">\n')
    for choice in question.choices:
        words = one_line(question.labels.get(choice, choice), _LONGEST_LABEL)
        if question.kind == "call":
            words = _words(choice, words)
        detail = question.details.get(choice, "")
        about = f' <small class="quiet">{escape(one_line(detail, 200))}</small>' if detail else ""
        allows = " data-allows disabled" if question.kind == "call" and choice not in _REFUSALS else ""
        main = "main" if choice == "once" else ""
        out.append(
            f'<button type="button" class="{main}" data-choice="{escape(choice)}"{allows}>'
            f"<bdi>{escape(words)}</bdi>{about}</button>\n"
        )
        if choice == "once" and question.hunks:
            out.append('<button type="button" class="main" data-accept disabled hidden></button>\n')
    if question.kind == "call" and "no" in question.choices:
        out.append(
            f'<button type="button" data-because aria-expanded="false" aria-controls="{place}-r">No, because</button>\n'
            f'<form class="reason" id="{place}-r" hidden><label>Reason <input name="reason" autocomplete="off" '
            'maxlength="10000"></label><button>Send reason</button></form>\n'
        )
    if question.kind == "call":
        out.append('<p class="unseen" hidden>The call goes on: scroll to its end to allow it.</p>\n')
    out.append("</div>\n")


def _words(choice: str, words: str) -> str:
    if choice == "once":
        return "Yes"
    if choice == "no":
        return "No"
    if choice in _ALWAYS:
        rest = words.removeprefix("always").removeprefix("Always").strip(" :,")
        return f"Always {rest}".strip()
    return words[:1].upper() + words[1:]
