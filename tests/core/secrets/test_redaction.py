"""Secrets are masked in every form and in every chunk, and nothing else is."""

from __future__ import annotations

import array
import base64
import dataclasses
import enum
import html
import io
import json
import logging
import re
import shlex
import textwrap
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentEnd,
    AgentResult,
    AgentToolResult,
    AssistantMessage,
    MessageUpdate,
    Redactor,
    StopReason,
    StreamFailed,
    StreamOptions,
    StreamStart,
    TaskEnded,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolResultMessage,
    encode_event,
    tool,
)
from swink_agent.core.errors import ErrorKind, StreamError
from swink_agent.core.values.data import as_json
from swink_agent.core.values.value import is_secret_name
from swink_agent.testing import call, scripted, text

MODEL = "scripted:model"
SECRET = 'k3y+/"with\\odd= chars~51'


PLACEHOLDER = re.compile(r"\[redacted:([A-Za-z0-9_.-]+):[0-9a-f]{8}\]")


def redactor(*secrets: str, patterns: bool = True) -> Redactor:
    return Redactor(secrets, environment={}, patterns=patterns)


def named(text: str) -> str:
    """The text with each placeholder cut down to its name: the rest is different in every redactor."""
    return PLACEHOLDER.sub(r"<\1>", text)


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
    for word in PLACEHOLDER.sub(" ", shown).split():
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


@pytest.mark.table
@pytest.mark.parametrize("form", forms_of(SECRET))
def test_a_registered_secret_is_masked_in_every_form(form: str) -> None:
    masked = redactor(SECRET).redact(f"before {form} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert PLACEHOLDER.search(masked)
    assert not is_readable(SECRET, masked)


def test_the_name_of_a_secret_stands_in_its_mask() -> None:
    known = redactor()
    assert known.register("swordfish-9", "DB_PASSWORD")
    assert named(known.redact("it is swordfish-9!")) == "it is <DB_PASSWORD>!"


def test_values_too_short_for_a_secret_are_not_taken() -> None:
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


@pytest.mark.table
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
    known = redactor()
    whole = known.redact(f"key={key} and more")
    assert named(whole) in ("key=<key> and more", "key=<private-key> and more")
    for size in (1, 2, 7):
        stream = known.stream()
        shown = "".join(stream.feed(f"key={key} and more"[at : at + size]) for at in range(0, len(key) + 13, size))
        assert shown + stream.finish() == whole, size


@pytest.mark.table
@pytest.mark.parametrize(
    "ordinary",
    [
        "def sk_learn(x): return x  # task-force, disk-usage, ask-me-anything-about-this-long-word",
        ".sk-spinner-with-many-words .sk-fading-circle-animation { color: red }",
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
    assert named(known.redact("Authorization: Bearer abc.def-123456")) == "Authorization: Bearer <authorization>"
    assert named(known.redact("postgres://ada:hunter22@db/x")) == "postgres://ada:<password>@db/x"
    stream = known.stream()
    shown = (
        stream.feed("Authorization: Bea") + stream.feed("rer abc.de") + stream.feed("f-123456\nnext") + stream.finish()
    )
    assert named(shown) == "Authorization: Bearer <authorization>\nnext"


@pytest.mark.parametrize(
    "text",
    [
        '{"Authorization": "Bearer abc.def-123456"}',
        "{'authorization': 'Bearer abc.def-123456'}",
        '{\\"Authorization\\": \\"token abc.def-123456\\"}',
        "map[Authorization:[Bearer abc.def-123456]]",
        "Authorization: ApiKey abc.def-123456",
    ],
)
def test_a_header_is_masked_as_programs_print_it(text: str) -> None:
    assert named(redactor().redact(text)) == text.replace("abc.def-123456", "<authorization>")
    stream = redactor().stream()
    assert "abc.def" not in "".join([*map(stream.feed, text), stream.finish()])


def test_a_dotted_capital_i_hides_no_name() -> None:
    assert "kx7Q" not in redactor().redact("\u0130stanbul\nDB_PASSWORD=kx7Qp2vLm9Rw4T\n")


def test_masking_twice_is_masking_once() -> None:
    known = redactor(SECRET)
    once = known.redact(" ".join(forms_of(SECRET)))
    assert known.redact(once) == once


@pytest.mark.slow
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
    masked = known.redact(SECRET)
    assert named(masked) == "<secret>"
    shown = known.redact_value(data)
    assert named(shown["password"]) == "<password>"  # type: ignore[arg-type]
    assert known.redact_value(shown) == shown
    assert shown == {
        "path": "a",
        "list": [masked, 1, None],
        "password": shown["password"],
        masked: "x",
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
    assert masked.content == (
        Text(f"it is {known.redact(SECRET)}"),
        ToolCall("1", "login", {"with": [known.redact(SECRET)]}),
    )
    result = known.redact_message(ToolResultMessage("1", SECRET, details={"out": SECRET}))
    assert SECRET not in repr(result)
    assert isinstance(result, ToolResultMessage)
    assert result.details == {"out": known.redact(SECRET)}


def test_a_secret_that_is_split_between_deltas_never_leaves_the_program() -> None:
    out = redactor("correct-horse").events()
    deltas = [MessageUpdate(TextDelta(0, piece)) for piece in ("I say cor", "rect-", "horse", "man")]
    shown = [event for delta in deltas for event in out.feed(delta)] + out.finish()
    written = "".join(event.delta.delta for event in shown if isinstance(event, MessageUpdate))
    assert named(written) == "I say <secret>man"


def test_a_key_at_the_start_of_a_block_is_masked_whatever_precedes_it() -> None:
    key = "sk-proj-aB3dEfGh1JkLmN0pQrStUv"
    out = redactor().events()
    deltas = [MessageUpdate(ThinkingDelta(0, "I use")), MessageUpdate(TextDelta(1, f"{key} done"))]
    shown = [event for delta in deltas for event in out.feed(delta)] + out.finish()
    assert key not in repr(shown)
    texts = [event.delta.delta for event in shown if isinstance(event, MessageUpdate)]
    assert [named(written) for written in texts] == ["I use", "<key> done"]


def test_a_background_command_that_ends_within_a_block_does_not_show_half_a_secret() -> None:
    out = redactor("correct-horse").events()
    events = [MessageUpdate(TextDelta(0, "I say correct-")), TaskEnded("1", 0), MessageUpdate(TextDelta(0, "horse"))]
    shown = [event for given in events for event in out.feed(given)] + out.finish()
    assert TaskEnded("1", 0) in shown
    written = "".join(event.delta.delta for event in shown if isinstance(event, MessageUpdate))
    assert named(written) == "I say <secret>"


PHRASE = "correct-horse"


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    text: str
    password: str = "letmein"


class Shown:
    def __str__(self) -> str:
        return f"it is {PHRASE}"


class Kind(enum.Enum):
    SECRET = PHRASE


def deep(value: object) -> object:
    for _ in range(5_000):
        value = [value]
    return value


def inmost(value: Any) -> object:
    while type(value) is list and len(value) == 1:
        value = value[0]
    return value


@pytest.mark.parametrize(
    "details",
    [
        Found(PHRASE),
        {"all": [Found(PHRASE)]},
        {PHRASE},
        frozenset({("is", PHRASE)}),
        ValueError(PHRASE),
        {"is": Shown()},
        f"it is {PHRASE}".encode(),
        [bytearray(PHRASE.encode()), memoryview(PHRASE.encode())],
        Kind.SECRET,
        {Kind.SECRET: 1},
        {Path("/home") / PHRASE: 1},
        {("is", PHRASE): 1},
        msgspec.Raw(f'["{PHRASE}"]'.encode()),
    ],
    ids=lambda details: type(details).__name__,
)
def test_data_is_masked_in_everything_that_is_written_as_json(details: object) -> None:
    known = redactor(PHRASE)
    for masked in (known.redact_value(details), inmost(known.redact_value(deep(details)))):
        assert PHRASE not in str(masked)
        written = as_json(masked)
        assert PHRASE.encode() not in written
        assert known.redact(written.decode()) == written.decode()  # bytes are written in base 64


def test_an_object_with_a_secret_becomes_its_masked_json_and_any_other_stays() -> None:
    known = redactor(PHRASE)
    masked: Any = known.redact_value(Found(PHRASE))
    assert named(masked["text"]) == "<secret>"
    assert named(masked["password"]) == "<password>"
    for clean in (Found("nothing", ""), {"nothing"}, Path("nothing"), b"\x89PNG\r\n", {"a": [Found("nothing", "")]}):
        assert known.redact_value(clean) is clean


@dataclasses.dataclass
class Broken:
    """Fails in the given ways, and when it is compared. A copy is the object itself."""

    name: str
    fails: tuple[str, ...]

    def __getattribute__(self, name: str) -> Any:
        if name != "fails" and name in self.fails:
            raise RuntimeError("it cannot be read")
        return object.__getattribute__(self, name)

    def __copy__(self) -> Broken:
        if "copy" in self.fails:
            raise RuntimeError("it cannot be copied")
        return self

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __hash__(self) -> int:
        return 7


@dataclasses.dataclass
class Holder:
    held: Any
    name: str


class BrokenText:
    def __str__(self) -> str:
        raise RuntimeError("it cannot be shown")


class BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("it is closed")

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class BrokenList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("it is closed")


class Hashable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return PHRASE

    def __iter__(self) -> Any:
        return iter(["is"])

    def __len__(self) -> int:
        return 1

    def __hash__(self) -> int:
        return 7


class Unbound:
    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("it is used outside of a request")


class OnlyTheSecret(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        if self.name != PHRASE:
            raise ValueError("another name")


class Listed(enum.Enum):
    NAMES = [PHRASE]


FAILING: dict[str, Callable[[], Any]] = {
    "a dataclass that cannot be copied": lambda: Broken(PHRASE, ("copy",)),
    "a dataclass that is its own copy": lambda: Broken(PHRASE, ()),
    "a dataclass with a field that cannot be read": lambda: Broken(PHRASE, ("name",)),
    "a dataclass in a dataclass": lambda: Holder(Broken("x", ()), PHRASE),
    "a struct that refuses masked values": lambda: OnlyTheSecret(PHRASE),
    "an array": lambda: array.array("u", PHRASE),
    "numbers": lambda: array.array("d", [1.5]),
    "no text": BrokenText,
    "a proxy without an object": Unbound,
    "a mapping": BrokenMapping,
    "a list": lambda: BrokenList([1]),
    "a key": lambda: {BrokenText(): b"x", "is": PHRASE},
    "a key that becomes a dict": lambda: {Hashable(): 1},
    "a member that becomes a dict": lambda: {Hashable()},
    "a member that becomes a list": lambda: frozenset([Listed.NAMES]),
    "a comparison that fails": lambda: Holder(Decimal("sNaN"), PHRASE),
}


@pytest.mark.table
@pytest.mark.parametrize("odd", FAILING)
def test_an_object_that_fails_costs_nothing_but_itself(odd: str) -> None:
    known = redactor(PHRASE)
    for data in (FAILING[odd](), deep(FAILING[odd]())):
        assert PHRASE.encode() not in as_json(inmost(known.redact_value(data)))
    in_others = {"odd": FAILING[odd](), "others": Holder([FAILING[odd]()], PHRASE)}
    masked = known.redact_value(in_others)
    assert list(masked) == ["odd", "others"]
    assert named(masked["others"]["name"]) == "<secret>"
    assert PHRASE.encode() not in as_json(masked)
    assert as_json(known.redact_value(masked)) == as_json(masked)


def test_a_masked_dataclass_is_never_the_object_of_the_tool() -> None:
    own = Broken(PHRASE, ())
    redactor(PHRASE).redact_value(own)
    assert own.name == PHRASE


def test_a_secret_with_half_a_character_is_masked() -> None:
    secret = "kx7Qp2vLm9\ud800Zt4Rw8"
    assert secret not in redactor(secret).redact(f"the key is {secret}.")


def test_the_exception_of_a_result_stays_one_when_its_event_is_masked() -> None:
    error = StreamError(PHRASE)
    ended = AgentEnd(
        (), result=AgentResult(messages=(), stop_reason=StopReason.ERROR, error=f"it is {PHRASE}", exception=error)
    )
    masked = redactor(PHRASE).redact_event(ended)
    assert isinstance(masked, AgentEnd)
    assert masked.result is not None
    assert masked.result.exception is error
    assert PHRASE not in (masked.result.error or "")


def test_a_log_record_whose_arguments_do_not_fit_is_masked_and_raises_nothing() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(redactor(SECRET).log_filter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("%d keys", SECRET)
    assert "%d keys" in written.getvalue()
    assert SECRET not in written.getvalue()


def test_a_log_record_whose_arguments_cannot_be_shown_raises_nothing() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(redactor(SECRET).log_filter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("%s and %s", Broken(), SECRET)
    assert written.getvalue().startswith("%s and %s")
    assert SECRET not in written.getvalue()


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
    assert "failed with <secret>" in named(written.getvalue())
    assert "ValueError: bad key <secret>" in named(written.getvalue())


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
    shown = "".join(block.text for content in updates for block in content if isinstance(block, Text))
    assert named(shown) == "now: <secret>, done"
    (end,) = [event for event in seen if isinstance(event, ToolExecutionEnd)]
    masked = shown.removeprefix("now: ").removesuffix(", done")
    assert end.result == AgentToolResult.text(f"it was {masked}", {"raw": masked})
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


async def test_a_split_secret_with_a_doubled_first_character_is_masked() -> None:
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
    assert named("".join(shown)) == "<secret>"


async def test_an_agent_knows_the_secrets_of_the_environment_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "canary-in-the-environment")

    @tool
    def environment() -> str:
        return "ACME_API_KEY=canary-in-the-environment"

    agent = Agent(MODEL, stream_fn=scripted(call("environment"), text("ok")), tools=[environment])
    result = await agent.prompt("go")
    assert "canary" not in repr(result.messages)
    assert "ACME_API_KEY=<ACME_API_KEY>" in named(repr(result.messages))


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
    assert "the key <API-key> is wrong" in named(agent.last_error)


# -- what is a secret, and what is not -----------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "value",
    [
        *("postgres", "true", "root", "changeme", "password123", "hunter2", "my-secret", "dev_password", "test-key"),
        *("Swordfish", "not-needed", "/run/secrets/db", "~/.ssh/id_ed25519", "./keys/dev.pem", "4096", "2024-05-01"),
        *("http://localhost:8080/x", "db.example.com:5432", "127.0.0.1:6379", "en_US.UTF-8", "v1.2.3", "3.5 MB"),
        *("${DB_PASSWORD}", "$(cat key)", "<your key here>", "abc", "xxxxxxxx", "********", "production"),
        *("/run/secrets/8f3a9c2b7d1e4f60", "../certs/server-2024.pem", "$HOME", "%APPDATA%", "/v1beta1/tokens"),
        *("/healthcheck", "~/Library/Keychains/login.keychain-db", "db2.eu-west-1.example.com", "ann@example.org"),
    ],
)
def test_an_ordinary_value_is_masked_only_as_a_credential(value: str) -> None:
    known = Redactor(environment={"DB_PASSWORD": value})
    prose = f"The word {value} stands here, {value}, and there: x={value} user: {value}."
    assert known.redact(prose) == prose
    if len(value) >= 6 and value.isalnum():
        assert value not in known.redact(f"PASSWORD={value}\n").removeprefix("PASSWORD=")
        assert named(known.redact(f"postgres://u:{value}@h/{value}")) == f"postgres://u:<DB_PASSWORD>@h/{value}"
        for said in (
            f'password: "{value}"',
            f'"db_password": "{value}",',
            f"export MYSQL_PWD={value}",
            f"--password {value} -x",
            f"--db-password={value}",
            f"curl -u ada:{value} http://h",
            f"mysql -p{value} x",
            f'{{\\"token\\": \\"{value}\\"}}',
        ):
            whole = known.redact(said)
            assert value not in whole, said
            assert known.redact(whole) == whole
            for size in (1, 2, 5):
                stream = known.stream()
                pieces = [stream.feed(said[at : at + size]) for at in range(0, len(said), size)]
                assert "".join(pieces) + stream.finish() == whole, (said, size)


@pytest.mark.table
@pytest.mark.parametrize(
    "value",
    [
        *("kx7Qp2vLm9", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "correct horse battery staple", "canary-one-1"),
        *("0f3a9c2b7d1e4f60", "hjklzxcvbnmqwrtp", "P@ssw0rd!2024xyz", "a-1b-2c-3d-4e", "123456789012345678"),
        "/K7MDENGbPxRfiCYEXAMPLEKEYwJalrXUtnFEMI1",
        *("/Zk81mnQ7rT4pW9", "~/Zk81mnQ7rT4pW9", "./Zk81mnQ7rT4pW9", "$Zk81mnQ7rT4pW9", "%Zk81mnQ7rT4pW9%"),
        *("Zk81mnQ7rT4p.Wxy", "/0f3a9c2b7d1e4f60", "/xkcdqwrt4581"),
    ],
)
def test_any_other_value_is_masked_wherever_it_stands(value: str) -> None:
    known = Redactor(environment={"DB_PASSWORD": value})
    assert named(known.redact(f"The word {value} stands here.")) == "The word <DB_PASSWORD> stands here."


@pytest.mark.table
@pytest.mark.parametrize("start", ["", "/", "~", "~/", "./", "../", "$", "%", "-", "--", "#", "{", "(", "@", "."])
@pytest.mark.parametrize("rest", ["Zk81mnQ7rT4pW9", "0f3a9c2b7d1e4f60aa", "kTCYSNib2dzfX18tYz1IsTtG"])
def test_a_drawn_value_is_masked_under_the_name_of_a_secret_whatever_it_begins_with(start: str, rest: str) -> None:
    for said in (f'DB_PASSWORD="{start}{rest}"\n', f"export DB_PASSWORD={start}{rest}\n"):
        if '"' in said or start not in ("{", "("):  # which are no part of a value that stands without quotes
            assert rest not in redactor().redact(said), said


@pytest.mark.table
@pytest.mark.parametrize(
    "code",
    [
        *('token = "/etc/app/token-2024.json"', "password: ${DB_PASSWORD_2}", 'secret: "{{ vault.db_password1 }}"'),
        *("password=$DB_PASSWORD_2024", 'key="./keys/server-2024-01.pem"', "token=getTokenFromEnvironment2"),
        *("secret = config.get_secret(name2)", 'api_key = os.environ["OPENAI_API_KEY_2"]', "--password -u2 --verbose"),
        *("token: /api/v2/tokens/refresh", "password = hashlib.sha256(password1).hexdigest()", "KEY=~/.ssh/id_ed25519"),
    ],
)
def test_placeholders_are_left_alone(code: str) -> None:
    assert redactor().redact(code) == code


@pytest.mark.table
@pytest.mark.parametrize(
    "name",
    [
        *("DB_PASS", "MYSQL_PWD", "APP_DSN", "PGPASSWORD", "SSH_PASSPHRASE", "GH_TOKEN", "CLIENT_SECRET", "STRIPE_KEY"),
        *("REDISCLI_AUTH", "API_KEY", "apiKey", "DB_PW", "LDAP_BINDPW", "AZURE_CONNECTION_STRING", "X-Api-Key"),
        *("AWS_SECRET_ACCESS_KEY", "GOOGLE_CREDENTIALS", "WIFI_PSK", "SMTP_PASS", "DBPASS", "pwd", "NPM_TOKEN"),
        *("API_KEY_2", "DB_PASSWORD_PROD", "password2", "NPM_TOKEN1"),
        *("CREDS", "PASSCODE", "DB_CONN_STR", "CONNSTR", "CI_JOB_JWT", "JWT"),
    ],
)
def test_the_names_that_people_give_to_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)
    assert "canary" not in Redactor(environment={name: "canary-7-fish-9"}).redact("it is canary-7-fish-9")


@pytest.mark.table
@pytest.mark.parametrize("name", ["API_KEY_2", "DB_PASSWORD_PROD", "password2", "aws_secret_access_key_old", "TOKEN1"])
@pytest.mark.parametrize("form", ["{}={}", "{}: {}", '{} = "{}"', '"{}": "{}",'])
def test_one_of_several_secrets_of_a_kind_is_masked_like_the_only_one(name: str, form: str) -> None:
    line = form.format(name, "kx7Qp2vLm9Rw4T")
    assert "kx7Q" not in redactor().redact(line)
    stream = redactor().stream()
    assert "kx7Q" not in "".join([*map(stream.feed, line), stream.finish()])


@pytest.mark.table
@pytest.mark.parametrize(
    "name",
    [
        *("PWD", "OLDPWD", "SSH_AUTH_SOCK", "KEYBOARD", "TOKENIZERS_PARALLELISM", "PUBLIC_KEY", "SSH_PUBLIC_KEY"),
        *("PASSWORD_FILE", "TOKEN_URL", "COMPASS", "BYPASS", "PATH", "AUTHOR", "MONKEY", "PRIMARY_KEY", "MAX_TOKENS"),
        *("PUBLIC_KEY_2", "PRIMARY_KEY1", "TOKEN_COUNT", "KEY2"),
    ],
)
def test_the_names_of_other_things_are_not_taken_for_them(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        ("DATABASE_URL", "postgres://ada:kx7Qp2vLm9@db/app", "kx7Qp2vLm9"),
        ("APP_DSN", "ada:kx7Qp2vLm9@tcp(db:3306)/app", "kx7Qp2vLm9"),
        ("SENTRY_DSN", "https://0f3a9c2b7d1e4f60aa@o1.ingest.example/2", "0f3a9c2b7d1e4f60aa"),
        ("PG_DSN", "host=db user=ada password=kx7Qp2vLm9", "kx7Qp2vLm9"),
        ("AZURE_CONNECTION_STRING", "AccountName=a;AccountKey=kx7Qp2vLm9==;End=x", "kx7Qp2vLm9=="),
    ],
)
def test_a_password_within_an_address_is_known_by_itself(variable: str, value: str, secret: str) -> None:
    assert secret not in Redactor(environment={variable: value}).redact(f"it is {secret}!")


ODD = "p\"a/s<s>&w\\ör$d'`+=1 2"


def as_it_is_written(secret: str) -> dict[str, str]:
    raw = secret.encode()
    long = base64.b64encode(b"user:" * 9 + raw + b"#" * 40).decode()
    python = json.dumps(secret)[1:-1]
    go = json.dumps(secret, ensure_ascii=False)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e")
    return {
        "python": python,
        "javascript": json.dumps(secret, ensure_ascii=False)[1:-1],
        "go": go.replace("&", "\\u0026"),
        "php": python.replace("/", "\\/"),
        "json in json": json.dumps(json.dumps({"a": secret})),
        "repr": repr({"a": secret}),
        "shell": shlex.quote(secret),
        "html": html.escape(secret),
        "query": urlencode({"a": secret}),
        "path": quote(secret),
        "component": quote(secret, safe="!~*'()"),
        "lower": re.sub("%[0-9A-F]{2}", lambda code: code.group().lower(), quote(secret, safe="")),
        "base64": base64.b64encode(raw).decode(),
        "wrapped at 76": base64.encodebytes(b"user:" * 9 + raw + b"#" * 40).decode(),
        "wrapped at 64": "\n".join(textwrap.wrap(long, 64)),
        "wrapped with CRLF": "\r\n".join(textwrap.wrap(long, 64)),
        "wrapped and indented": "\n    ".join(textwrap.wrap(long, 64)),
        "wrapped in JSON": json.dumps("\n".join(textwrap.wrap(long, 60))),
        "base64 in an address": quote(long, safe=""),
        "URL-safe": long.replace("+", "-").replace("/", "_"),
        "hex": raw.hex(),
        "hex with colons": raw.hex(":"),
        "hex with spaces": raw.hex(" ").upper(),
        "hex with prefixes": ", ".join(f"0x{byte:02x}" for byte in raw),
        "escaped bytes": "".join(f"\\x{byte:02x}" for byte in raw),
        "array": "{" + ",\n  ".join(f"0x{byte:02X}" for byte in raw) + "}",
        "escaped bytes in JSON": json.dumps("".join(f"\\x{byte:02x}" for byte in raw)),
        "base64 by PHP": json.dumps(long).replace("/", "\\/"),
        "bytes": repr(raw),
        "ascii": ascii(secret),
        "jq @html": html.escape(secret).replace("&#x27;", "&#39;"),
        "PHP's HTML": html.escape(secret).replace("&#x27;", "&#039;"),
        "XML": html.escape(secret).replace("&#x27;", "&apos;"),
        "Go's HTML": html.escape(secret).replace("&#x27;", "&#39;").replace("&quot;", "&#34;").replace("+", "&#43;"),
        "YAML and SQL": secret.replace("'", "''"),
        "CSV": secret.replace('"', '""'),
        "Go's paths": quote(secret, safe="$&+:=@"),
        "Go's userinfo": quote(secret, safe="$&+,;="),
        "userinfo of a browser": quote(secret, safe="!$%&'()*+,~"),
        "path of a browser": quote(secret, safe="!$%&'()*+,~/:;=@[]\\|"),
        "query of a browser": quote(secret, safe="!$%&()*+,~/:;=@[]\\|?^`{}"),
        "address in an address": quote(quote(secret, safe=""), safe=""),
        "bash": re.sub(r"([^\w@%+=:./-])", r"\\\1", secret),
        "bash without a locale": secret.replace("\\", "\\\\").replace("'", "\\'").replace("ö", "\\303\\266"),
        "JSON three times": json.dumps(json.dumps(json.dumps(secret))),
        "hex after a dotted I": "\u0130stanbul " + raw.hex().upper(),
    }


@pytest.mark.table
@pytest.mark.parametrize("secret", ["kx7Qp2vLm9-Zt4Rw8Yb3", ODD])
@pytest.mark.parametrize("how", as_it_is_written(ODD))
def test_a_secret_is_found_as_common_tools_write_it(secret: str, how: str) -> None:
    known = redactor(secret, patterns=False)
    written = as_it_is_written(secret)[how]
    masked = known.mask(f"before\n{written}\nafter")
    assert masked.spans, written
    assert masked.put_back(masked.text).text == f"before\n{written}\nafter"
    rest = PLACEHOLDER.sub("", masked.text)
    assert len(rest) <= len(f"before\n{written}\nafter") - len(secret) * 0.8
    for piece in (secret[:9], secret[-9:], secret.encode()[3:-3].hex()):
        assert piece not in rest


@pytest.mark.parametrize("odd", [*"!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~ é", "'\""])
def test_one_odd_character_in_a_secret_is_enough(odd: str) -> None:
    secret = f"kx7Qp2v{odd}Lm9Zt4w"
    known = redactor(secret, patterns=False)
    for how, written in as_it_is_written(secret).items():
        assert known.mask(f"before\n{written}\nafter").spans, how


@pytest.mark.table
@pytest.mark.parametrize("secret", ["kx7Qp2vLm9-Zt4Rw8Yb3", ODD])
@pytest.mark.parametrize("how", as_it_is_written(ODD))
def test_a_secret_as_common_tools_write_it_is_found_in_chunks_too(secret: str, how: str) -> None:
    known = redactor(secret, patterns=False)
    text = f"before\n{as_it_is_written(secret)[how]}\nafter"
    for size in (1, 2, 7, 30):
        stream = known.stream()
        shown = "".join([stream.feed(text[at : at + size]) for at in range(0, len(text), size)]) + stream.finish()
        rest = PLACEHOLDER.sub("", shown)
        assert len(rest) <= len(text) - len(secret) * 0.8, (size, shown)


def test_text_that_only_has_escapes_in_common_with_a_secret_is_left_alone() -> None:
    known = redactor(ODD, "correct horse battery staple", patterns=False)
    for ordinary in (
        "print(\"a/s<s>&w\", 50 % 2, 'it''s') && x=%20%2F",
        "correct+horse and battery%20staple",
        '{"a": "p\\"a\\/s\\u003cs", "b": "&amp;&lt;"}',
        "C:\\Users\\ada\\x.txt 100% & more",
    ):
        assert known.redact(ordinary) == ordinary
        stream = known.stream()
        assert "".join([*map(stream.feed, ordinary), stream.finish()]) == ordinary


def test_a_name_or_all_of_it_can_be_left_unmasked() -> None:
    environment = {"DB_PASSWORD": "kx7Qp2vLm9", "API_KEY": "sk-" + "a1B2" * 12}
    text = "kx7Qp2vLm9 " + environment["API_KEY"] + " DB_PASSWORD=zx98kw76lq54"
    off = Redactor(environment=environment, enabled=False)
    assert off.redact(text) == text
    assert off.stream().feed(text) == text
    some = Redactor(environment=environment, unmasked=["db_password"])
    assert named(some.redact(text)) == "kx7Qp2vLm9 <API_KEY> DB_PASSWORD=zx98kw76lq54"
    other = Redactor(environment=environment, unmasked=["API_KEY"])
    assert named(other.redact(text)) == f"<DB_PASSWORD> {environment['API_KEY']} DB_PASSWORD=<DB_PASSWORD>"


async def test_a_value_keeps_its_placeholder_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "canary-in-the-environment")

    @tool
    def look() -> str:
        return "canary-in-the-environment"

    agent = Agent(MODEL, stream_fn=scripted(call("look"), text("ok"), call("look"), text("ok")), tools=[look])
    await agent.prompt("go")
    await agent.prompt("again")
    results = [message.content for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert len(results) == 2
    assert results[0] == results[1]


@given(st.text(alphabet="sk-eyJ.:/@=\"'pasword\n 0aA[]%\\", max_size=120), st.lists(st.integers(0, 120), max_size=6))
def test_masking_is_settled_at_once_and_the_same_in_chunks(text: str, cuts: list[int]) -> None:
    known = Redactor(["0aA0aA0a"], environment={"DB_PASSWORD": "password"})
    masked = known.mask(text)
    assert known.redact(text) == masked.text
    assert known.redact(masked.text) == masked.text
    pieces = [text[start:end] for start, end in pairwise([0, *sorted(cuts), len(text)])]
    stream = known.stream()
    assert "0aA0aA0a" not in "".join([stream.feed(piece) for piece in pieces]) + stream.finish()


def test_a_long_text_is_masked_as_a_short_one_is() -> None:
    known = redactor("correct-horse")
    key = "-----BEGIN PRIVATE KEY-----\n" + "QUJD\n" * 40 + "-----END PRIVATE KEY-----"
    for filler in ("word " * 30_000, "word\n" * 30_000, "x" * 200_000):
        text = f"{filler}correct-horse {key}{filler}correct-horse"
        masked = known.mask(text)
        assert named(masked.text).count("<secret>") == 2
        assert named(masked.text).count("<private-key>") == 1
        assert masked.put_back(masked.text).text == text


def test_a_redactor_that_was_told_nothing_is_still_one() -> None:
    known = Redactor(environment={})
    assert (len(known), bool(known)) == (0, True)


@pytest.mark.table
@pytest.mark.parametrize("between", ["", "-", "_", "-db-", "."])
@pytest.mark.parametrize("given", ['password="{}"', "token={}", "API_KEY: {}"])
@pytest.mark.parametrize("before", ["", "x" * 31, "a name " * 40])
def test_the_name_in_a_placeholder_is_never_a_part_of_another_secret(between: str, given: str, before: str) -> None:
    value, key, long = "k2mPx4Wt7LrBq8vZ", "ghp_" + "aB3xYz12kk9" * 4, "L0ngest" * 20
    for secret in (PHRASE, key, long):
        plain = f"{before}{secret}{between}{given.format(value)} and more"
        known = redactor(*([] if secret is key and not before.endswith("x") else [secret]))
        stream = known.stream()
        whole = known.redact(plain)
        pieces = "".join([stream.feed(character) for character in plain]) + stream.finish()
        for shown in (whole, pieces):
            assert value not in shown
            assert not any(secret[at : at + 6] in shown for at in range(len(secret) - 5))
    assert named(redactor().redact(f"MY_APP_API_KEY={value}")) == "MY_APP_API_KEY=<MY_APP_API_KEY>"


@pytest.mark.table
@pytest.mark.parametrize(
    "before",
    [
        "\\n",
        "\\t",
        "\\r\\n",
        "\\x1b[0m",
        "\\u0022",
        "\\u001b[1;32m",
        "%20",
        "%3D",
        "\x1b[m",
        "\x1b[1;32m",
        "\x1b[38;5;214m",
    ],
)
@pytest.mark.parametrize(
    "key",
    ["ghp_" + "aB3xYz12kk9" * 4, "sk-ant-api03-" + "Qw3rTy77" * 6, "AKIAIOSFODNN7EXAMPLQ", "xoxb-123456789012-abc"],
)
def test_a_key_is_masked_directly_after_an_escape_or_a_colour(before: str, key: str) -> None:
    known, plain = redactor(), f"first{before}{key} and more"
    wanted = f"first{before}<key> and more"
    assert named(known.redact(plain)) == wanted
    for size in (1, 2, 3, 7):
        stream = known.stream()
        pieces = [stream.feed(plain[at : at + size]) for at in range(0, len(plain), size)]
        assert named("".join([*pieces, stream.finish()])) == wanted
    assert known.redact(f"first{key} and more") == f"first{key} and more"
