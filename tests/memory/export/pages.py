"""Parses an exported page as a browser would, to see its elements."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input"}
ATTRIBUTES = {
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "a": {"class", "href", "title", "rel", "aria-label"},
    "input": {"type", "name", "id", "checked"},
    "nav": {"class", "aria-label"},
    "aside": {"class", "aria-label"},
    "main": {"id"},
    "article": {"class", "id"},
    "time": {"datetime"},
    "details": {"class"},
    "pre": {"class", "tabindex", "data-language"},
    "img": {"src", "alt", "loading"},
    "ol": {"start"},
    "div": {"class", "tabindex", "role", "aria-label"},
    "p": {"class", "dir"},
    "li": {"class", "dir"},
    **{
        tag: {"class"}
        for tag in ("span", "bdi", "ul", "fieldset", "header", "section", "dl", "label", "code", "th", "td")
    },
    **{f"h{level}": {"class", "dir"} for level in range(1, 7)},
    **{
        tag: set[str]()
        for tag in (
            *("head", "body", "title", "style", "legend", "footer", "summary", "figure", "dt", "dd", "table", "thead"),
            *("tbody", "tr", "em", "strong", "del", "blockquote", "br", "hr"),
        )
    },
}
CLASSES = re.compile(r"[a-z -]*")
LINKS = re.compile(r"#m\d+|#session|https?://[^\s\"'<>]+|mailto:[^\s\"'<>]*")
PICTURES = re.compile(r"data:image/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/]+=*")


class Page(HTMLParser):
    """The elements of a page. Raises where one is none of ours, has an attribute of no use to us, or does not close."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        assert tag in ATTRIBUTES, f"<{tag}> is no element of ours"
        assert attributes.keys() <= ATTRIBUTES[tag], f"<{tag}> with {attributes}"
        assert len(attributes) == len(attrs), f"<{tag}> says something twice: {attrs}"
        assert CLASSES.fullmatch(attributes.get("class", "")), attributes
        if tag == "a":
            assert LINKS.fullmatch(attributes["href"]), attributes
            assert attributes["href"].startswith("#") or "noopener" in attributes["rel"]
        if tag == "img":
            assert PICTURES.fullmatch(attributes["src"]), attributes
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple([attributes["class"].split()[0] for attributes in self.all("article")])

    def text(self, inside: str = "main") -> str:
        return "".join([text for path, text in self.texts if inside in path])
