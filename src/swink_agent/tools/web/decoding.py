"""The body of an answer as text: which encoding it has.

Only encodings that pages use are read. Python has others that take quadratic time, or that hide text (UTF-7).
"""

from __future__ import annotations

import codecs
import re

_PAGE_ENCODINGS = re.compile(
    r"utf-8(-sig)?|utf-16(-le|-be)?|iso8859-\d+|cp(125\d|866|874|932|949|950)|koi8-[ru]|mac-(roman|cyrillic)"
    r"|shift_jis|euc_(jp|kr)|iso2022_jp|tis-620|gbk|gb2312|gb18030|big5|big5hkscs"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_IN_PAGE = re.compile(rb"<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_SEARCHED = 1024
"""Bytes in which a page says its encoding, as browsers look for it."""


def decoded(body: bytes, charset: str | None, *, is_html: bool) -> str:
    """The text: by its byte order mark, the header's charset, what an HTML page says itself, else UTF-8."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, errors="replace")
    known = _page_encoding(charset or "")
    if known is None and is_html and (found := _IN_PAGE.search(body, 0, _SEARCHED)):
        known = _page_encoding(found[1].decode("ascii", "replace"))
        if known is not None and known.startswith("utf-16"):
            known = None  # the page could be read as far as this: it is not UTF-16
    return body.decode(known or "utf-8", errors="replace")


def _page_encoding(name: str) -> str | None:
    """Python's name of an encoding of pages; `None` for any other name."""
    try:
        known = codecs.lookup(name.strip("\"' ")).name
    except (LookupError, ValueError):
        return None
    if known in ("iso8859-1", "ascii"):
        return "cp1252"  # what pages mean by it
    return known if _PAGE_ENCODINGS.fullmatch(known) else None
