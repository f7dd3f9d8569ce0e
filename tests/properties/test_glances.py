"""The shortcut before a search for secrets never misses one: it says no only if the full search finds nothing."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from swink_agent import AssistantMessage, Redactor, Text, Thinking, ToolCall, ToolResultMessage, UserMessage
from swink_agent.core.journal import CallFacts, MessageAdded, ModelChanged, RunStarted, StateChanged, ToolStarted
from swink_agent.core.secrets.unknown_secrets import _KEY_MARKS, _KEY_STARTS, _shapes, may_hold_key
from swink_agent.core.types import ModelSpec
from swink_agent.memory.log.masking import masked, may_need_masking

SECRET = "correct-horse-99"
KEYED = "abcXYZ019_-"
REDACTOR = Redactor([SECRET, "s3cret"], environment={})

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


names = st.sampled_from(["a", "b", "path", "password", "pat", "api_key", SECRET, "s3cret", "pwd"])
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(["", "x", "hunter2", SECRET])
)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))
arguments = st.dictionaries(names, values, max_size=3)
blocks = st.one_of(
    st.builds(Text, st.sampled_from(["x", SECRET])),
    st.builds(Thinking, st.sampled_from(["x", SECRET])),
    st.builds(ToolCall, st.just("c"), st.just("add"), arguments),
    st.builds(ToolCall, st.just("c"), st.just("add"), st.just({}), st.sampled_from([SECRET, "{"])),
)
entries = st.one_of(
    st.builds(
        lambda content, error: MessageAdded(AssistantMessage(content, error_message=error), "reply"),
        st.lists(blocks, max_size=3),
        st.sampled_from([None, "x", SECRET]),
    ),
    st.builds(
        lambda given, scope: ToolStarted(
            0, "c", "add", given, None if scope is None else CallFacts(approval="approved", scope=scope)
        ),
        st.none() | arguments,
        st.none() | arguments,
    ),
    st.builds(StateChanged, arguments),
    st.sampled_from(
        [
            MessageAdded(UserMessage(SECRET), "prompt"),
            MessageAdded(ToolResultMessage("c", SECRET), "given"),
            RunStarted("run"),
            ModelChanged(ModelSpec("a", "b")),
        ]
    ),
)


@given(entries)
def test_a_glance_notices_everything_that_masking_would_change(entry: MessageAdded | ToolStarted) -> None:
    if masked(entry, REDACTOR) != entry:
        assert may_need_masking(entry)
