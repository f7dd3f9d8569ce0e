"""Parses the page of a report as a browser would, to see its elements."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input"}
ELEMENTS = {
    *("html", "head", "body", "title", "style", "meta", "main", "nav", "header", "footer", "section", "article", "div"),
    *(
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "p",
        "a",
        "span",
        "bdi",
        "strong",
        "em",
        "del",
        "small",
        "code",
        "pre",
        "time",
    ),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "blockquote", "br", "hr"),
    *("details", "summary", "fieldset", "legend", "label", "input", "figure", "figcaption", "img"),
    *("svg", "circle", "rect", "line", "polygon", "polyline"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "rel", "title", "dir", "datetime"),
    *("aria-label", "aria-hidden", "role", "tabindex", "type", "checked", "data-language", "start", "src", "alt"),
    *("loading", "viewbox", "preserveaspectratio", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "width"),
    *("height", "points", "transform", "stroke-dasharray"),
}
LINK = re.compile(r"#[a-z0-9]+|https?://[^\s\"'<>]+|mailto:[^\s\"'<>]*")
NAME = re.compile(r"[a-z0-9 -]*")


class Page(HTMLParser):
    """The elements of a page. Raises where one is none of ours, has an attribute of no use to us, or does not close."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        assert tag in ELEMENTS, f"<{tag}> is no element of ours"
        assert attributes.keys() <= ATTRIBUTES, f"<{tag}> with {attributes}"
        assert len(attributes) == len(attrs), f"<{tag}> says something twice: {attrs}"
        assert NAME.fullmatch(attributes.get("class", "") + attributes.get("id", "")), attributes
        if tag == "a":
            assert LINK.fullmatch(attributes["href"]), attributes
        if tag == "title":
            assert self.open[-1] in ("head", "circle")
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def all(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        return [found for name, found in self.tags if name == tag and kind in ["", *found.get("class", "").split()]]

    @property
    def text(self) -> str:
        return "".join(self.texts)
