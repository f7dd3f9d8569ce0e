"""The shortcut before a search for secrets never misses one: it says no only if the full search finds nothing."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from swink_agent import Redactor
from swink_agent.core.secrets.unknown_secrets import _KEY_MARKS, _KEY_STARTS, _shapes, may_hold_key

KEYED = "abcXYZ019_-"
REDACTOR = Redactor(environment={})

shapes = st.lists(
    st.one_of(
        st.sampled_from(
            [*_KEY_STARTS, "sk-ant-", "sk-proj-", ".", ".eyJ", "+", "/", "=", " ", "\n", "é", "\ud800", "Ⅷ"]
        ),
        st.text(KEYED, min_size=8, max_size=50),
        st.text(KEYED + "+/=.", max_size=25),
        st.text(max_size=5),
    ),
    max_size=8,
).map("".join)


def shortest(pattern: str) -> str:
    """The shortest text of the shape: each run as long as it has to be."""
    plain = re.sub(r"\(\?<!-\)|\(\?=[^)]*\)|\(\?:ant-\|proj-\|svcacct-\|or-v1-\)\?", "", pattern)
    plain = re.sub(r"\(\?:(\w+)\|\w+\)", r"\1", plain)
    plain = re.sub(r"\[(\w)[^\]]*\]\{(\d+),?\}\+?", lambda run: run[1] * int(run[2]), plain)
    return re.sub(r"\[(\w)[^\]]*\]", r"\1", plain).replace("\\", "")


def test_the_shortest_key_of_every_shape_is_seen() -> None:
    kinds = _shapes().key.pattern.removeprefix(f"{_shapes().begins.pattern}(?:").removesuffix(")")
    keys = [shortest(kind) for kind in re.split(r"\|(?![^(]*\))", kinds)]
    assert len(keys) >= 19
    for key in keys:
        assert _shapes().key.fullmatch(key), key
        assert may_hold_key(f"the key: {key}, it is"), key
        assert REDACTOR.redact(f"({key})").startswith("([redacted:"), key
    assert {mark for mark, _ in _KEY_MARKS if not any(mark in key for key in keys)} <= {
        "ASIA",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
    }


@given(shapes)
@example("whsec_" + "a+b/" * 5)
@example("eyJaaaaaaaaaa.eyJaaaaaaaaaa.aaaaaaaaaa")
def test_where_a_key_is_found_a_glance_says_that_there_may_be_one(text: str) -> None:
    if _shapes().key.search(text) is not None:
        assert may_hold_key(text)
