"""Secrets are masked in every form and in every chunk, and nothing else is."""

from __future__ import annotations

import base64
import io
import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentToolResult,
    AssistantMessage,
    MessageUpdate,
    Redactor,
    StreamFailed,
    StreamOptions,
    StreamStart,
    Text,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolResultMessage,
    encode_event,
    tool,
)
from swink_agent.core.errors import ErrorKind
from swink_agent.testing import call, scripted, text

MODEL = "scripted:model"
SECRET = 'k3y+/"with\\odd= chars~51'


def redactor(*secrets: str, patterns: bool = True) -> Redactor:
    return Redactor(secrets, environment={}, patterns=patterns)


def forms_of(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw + b"\n").decode(),
        base64.b64encode(b"x" + raw).decode(),
        base64.b64encode(b"xy" + raw + b"zz").decode(),
        quote(secret, safe=""),
        quote(secret, safe="").lower(),
        raw.hex(),
        raw.hex().upper(),
        secret.replace("\\", "\\\\").replace('"', '\\"'),
    ]


def is_readable(secret: str, shown: str) -> bool:
    """Whether someone who reads the text can get the middle of the secret out of it."""
    middle = secret[4:-4]
    candidates = [shown]
    for word in shown.replace("[redacted]", " ").split():
        for padded in (word, word + "=", word + "==", "A" + word, "AA" + word):
            try:
                candidates.append(base64.b64decode(padded.replace("-", "+").replace("_", "/")).decode("latin-1"))
            except ValueError:
                pass
        try:
            candidates.append(bytes.fromhex(word).decode("latin-1"))
        except ValueError:
            pass
    return any(middle in candidate for candidate in candidates)


@pytest.mark.parametrize("form", forms_of(SECRET))
def test_a_registered_secret_is_masked_in_every_form(form: str) -> None:
    masked = redactor(SECRET).redact(f"before {form} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert "[redacted]" in masked
    assert not is_readable(SECRET, masked)


def test_the_name_of_a_secret_stands_in_its_mask() -> None:
    known = redactor()
    assert known.register("swordfish-9", "DB_PASSWORD")
    assert known.redact("it is swordfish-9!") == "it is [redacted DB_PASSWORD]!"


def test_what_is_too_short_to_be_a_secret_is_not_taken() -> None:
    known = redactor()
    assert not known.register("abc")
    assert known.redact("abc abc") == "abc abc"


def test_variables_named_like_secrets_are_registered_by_themselves() -> None:
    known = Redactor(
        environment={
            "ACME_API_KEY": "canary-one-1",
            "DB_PASSWORD": "canary-two-2",
            "SESSION_TOKEN": "canary-three-3",
            "MY_SECRET_VALUE": "canary-four-4",
            "GIT_AUTHOR_NAME": "Ada Lovelace",
            "SSH_AUTH_SOCK": "/run/agent.sock",
            "MAX_TOKENS": "4096",
            "KEYBOARD": "qwertyuiop",
        }
    )
    shown = known.redact(
        "canary-one-1 canary-two-2 canary-three-3 canary-four-4 Ada Lovelace /run/agent.sock qwertyuiop"
    )
    assert "canary" not in shown
    assert shown.endswith("Ada Lovelace /run/agent.sock qwertyuiop")


@pytest.mark.parametrize(
    "key",
    [
        "sk-" + "a1B2" * 12,
        "sk-ant-api03-" + "x9_Y-" * 12,
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2_" * 9,
        "glpat-" + "a1B2" * 5,
        "xoxb-123456789012-abcdef",
        "AIza" + "a1B2-" * 7,
        "hf_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_common_keys_are_masked_by_their_shape_whole_or_in_chunks(key: str) -> None:
    whole = redactor().redact(f"key={key} and more")
    assert whole == "key=[redacted] and more"
    for size in (1, 2, 7):
        stream = redactor().stream()
        shown = "".join(stream.feed(f"key={key} and more"[at : at + size]) for at in range(0, len(key) + 13, size))
        assert shown + stream.finish() == whole, size


@pytest.mark.parametrize(
    "ordinary",
    [
        "def sk_learn(x): return x  # task-force, disk-usage, ask-me-anything-about-this-long-word",
        "https://example.com/a:b@c and git@github.com:user/repository.git",
        "hf_hub, npm_config, AKI, eyJ, the key is under the mat",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "commit 1f0c3a9d8b7e6f5a4c3b2a1908f7e6d5c4b3a291",
    ],
)
def test_ordinary_text_is_left_alone(ordinary: str) -> None:
    assert redactor().redact(ordinary) == ordinary
    stream = redactor().stream()
    assert "".join(stream.feed(character) for character in ordinary) + stream.finish() == ordinary


def test_headers_and_addresses_with_passwords_are_masked() -> None:
    known = redactor()
    assert known.redact("Authorization: Bearer abc.def-123456") == "Authorization: Bearer [redacted]"
    assert known.redact("postgres://ada:hunter22@db/x") == "postgres://ada:[redacted]@db/x"
    stream = known.stream()
    shown = (
        stream.feed("Authorization: Bea") + stream.feed("rer abc.de") + stream.feed("f-123456\nnext") + stream.finish()
    )
    assert shown == "Authorization: Bearer [redacted]\nnext"


def test_masking_twice_is_masking_once() -> None:
    known = redactor(SECRET)
    once = known.redact(" ".join(forms_of(SECRET)))
    assert known.redact(once) == once


@given(
    secret=st.text(alphabet="abAB01", min_size=6, max_size=12),
    parts=st.lists(st.text(alphabet="abAB01 ", max_size=6), max_size=6),
    data=st.data(),
)
def test_a_secret_never_shows_however_the_text_is_cut(secret: str, parts: list[str], data: st.DataObject) -> None:
    known = redactor(secret, patterns=False)
    whole = secret.join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    stream = known.stream()
    pieces = [stream.feed(whole[start:end]) for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown = "".join(pieces) + stream.finish()
    assert secret not in shown
    assert all(secret not in piece for piece in pieces)
    # What is shown is the text with masks in it: nothing is lost and nothing comes twice.
    if secret not in whole:
        assert shown == whole


def test_a_stream_holds_back_no_more_than_it_must() -> None:
    stream = redactor("correct-horse").stream()
    assert stream.feed("the word is corr") == "the word is "
    assert stream.feed("ugated ") == "corrugated "


def test_json_data_is_masked_in_keys_and_values_and_under_the_names_of_secrets() -> None:
    known = redactor(SECRET)
    data = {"path": "a", "list": [SECRET, 1, None], "password": "hunter2", SECRET: "x", "tokens": 5, "token": ""}
    assert known.redact_value(data) == {
        "path": "a",
        "list": ["[redacted]", 1, None],
        "password": "[redacted]",
        "[redacted]": "x",
        "tokens": 5,
        "token": "",
    }
    assert data["list"] == [SECRET, 1, None]


def test_messages_are_masked_and_those_without_secrets_are_the_same_object() -> None:
    known = redactor(SECRET)
    clean = AssistantMessage("nothing here")
    assert known.redact_message(clean) is clean
    message = AssistantMessage([Text(f"it is {SECRET}"), ToolCall("1", "login", {"with": [SECRET]})])
    masked = known.redact_message(message)
    assert isinstance(masked, AssistantMessage)
    assert masked.content == (Text("it is [redacted]"), ToolCall("1", "login", {"with": ["[redacted]"]}))
    result = known.redact_message(ToolResultMessage("1", SECRET, details={"out": SECRET}))
    assert SECRET not in repr(result)
    assert isinstance(result, ToolResultMessage)
    assert result.details == {"out": "[redacted]"}


def test_a_secret_that_is_split_between_deltas_never_leaves_the_program() -> None:
    out = redactor("correct-horse").events()
    deltas = [MessageUpdate(TextDelta(0, piece)) for piece in ("I say cor", "rect-", "horse", "man")]
    shown = [event for delta in deltas for event in out.feed(delta)] + out.finish()
    written = "".join(event.delta.delta for event in shown if isinstance(event, MessageUpdate))
    assert written == "I say [redacted]man"


def test_a_log_record_is_masked_with_its_arguments_and_its_traceback() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(redactor(SECRET).log_filter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(f"bad key {SECRET}")
    except ValueError:
        logger.exception("failed with %s", SECRET)
    assert "failed with [redacted]" in written.getvalue()
    assert "ValueError: bad key [redacted]" in written.getvalue()


def test_a_redactor_says_how_much_it_knows_and_nothing_of_it() -> None:
    assert repr(redactor(SECRET)) == "<Redactor of 1 secrets>"


# -- in a run ------------------------------------------------------------------------------------------------


async def test_tool_results_and_updates_are_masked_before_anyone_sees_them() -> None:
    @tool
    async def leak(ctx: ToolContext) -> AgentToolResult:
        for chunk in ("now: cor", "rect-", "horse, ", "done"):
            ctx.update(chunk)
        return AgentToolResult.text("it was correct-horse", {"raw": "correct-horse"})

    seen: list[object] = []
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("leak"), text("ok")),
        tools=[leak],
        redactor=redactor("correct-horse"),
    )
    agent.subscribe(seen.append)
    result = await agent.prompt("go")
    updates = [event.update.content for event in seen if isinstance(event, ToolExecutionUpdate)]
    assert "".join(block.text for content in updates for block in content if isinstance(block, Text)) == (
        "now: [redacted], done"
    )
    (end,) = [event for event in seen if isinstance(event, ToolExecutionEnd)]
    assert end.result == AgentToolResult.text("it was [redacted]", {"raw": "[redacted]"})
    assert "correct-horse" not in repr(result.messages)


async def test_an_update_that_says_all_from_the_start_is_shown_as_it_is() -> None:
    @tool
    async def progress(ctx: ToolContext) -> str:
        ctx.update("step 1 c")
        ctx.update("step 1 correct")
        ctx.update("step 1 correct, step 2")
        return "done"

    agent = Agent(
        MODEL, stream_fn=scripted(call("progress"), text("ok")), tools=[progress], redactor=redactor("correct-horse")
    )
    shown: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, ToolExecutionUpdate):
            shown.append("".join(block.text for block in event.update.content if isinstance(block, Text)))

    agent.subscribe(note)
    await agent.prompt("go")
    assert shown == ["step 1 ", "step 1 ", "step 1 correct, step 2"]


async def test_a_secret_that_begins_with_a_doubled_character_is_masked_when_split_after_the_first() -> None:
    @tool
    async def leak(ctx: ToolContext) -> str:
        ctx.update("s")
        ctx.update("secret-horse")
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(call("leak"), text("ok")), tools=[leak], redactor=redactor("ssecret-horse"))
    shown: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, ToolExecutionUpdate):
            shown.append("".join(block.text for block in event.update.content if isinstance(block, Text)))

    agent.subscribe(note)
    await agent.prompt("go")
    assert "".join(shown) == "[redacted]"


async def test_an_agent_knows_the_secrets_of_the_environment_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "canary-in-the-environment")

    @tool
    def environment() -> str:
        return "ACME_API_KEY=canary-in-the-environment"

    agent = Agent(MODEL, stream_fn=scripted(call("environment"), text("ok")), tools=[environment])
    result = await agent.prompt("go")
    assert "canary" not in repr(result.messages)
    assert "ACME_API_KEY=[redacted ACME_API_KEY]" in repr(result.messages)


async def test_a_provider_that_repeats_the_key_in_its_error_is_masked() -> None:
    async def refuse(model: object, context: object, options: StreamOptions, cancel: object):
        yield StreamStart()
        yield StreamFailed(f"the key {options.api_key} is wrong", ErrorKind.AUTH)

    agent = Agent(MODEL, stream_fn=refuse, get_api_key=lambda provider: "canary-from-the-vault")
    events = [event async for event in agent.prompt_stream("go")]
    written = b"\n".join(encode_event(event) for event in events).decode()
    assert "canary" not in written
    assert agent.last_error is not None
    assert "canary" not in agent.last_error
    assert "the key [redacted API key] is wrong" in agent.last_error
