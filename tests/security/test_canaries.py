"""One run with secret canaries everywhere: no output contains any of them.

They are in the environment, the key, the headers, the arguments, the results, the updates and the errors, with
characters that change under every encoding. The test looks for each form that masking promises to find.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
import uuid
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from swink_agent import (
    AgentToolResult,
    AuthError,
    ErrorKind,
    ModelSpec,
    Redactor,
    StreamFailed,
    StreamOptions,
    StreamStart,
    ToolContext,
    ToolError,
    ToolResultMessage,
    encode_message,
    tool,
)
from swink_agent.adapters import AnthropicStreamFn, OpenAiStreamFn, stream_fn_for
from swink_agent.approvals import ApprovalQuestion
from swink_agent.core.retry import DefaultRetryStrategy
from swink_agent.testing import FakeProvider, call, scripted, text, think
from swink_agent.testing.fakes import FakeFailure

from .world import World, leaks, promised_forms, write

KINDS = ("environment", "key", "header", "registered", "argument", "password")
EXPECTED_LEAKS = {"argument": ["model"], "password": ["model"]}
"""What the model wrote in a call is in the history unchanged, and is sent back to it."""


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    planted = {kind: f"cAnary/{kind}+{uuid.uuid4().hex}=?&%" for kind in KINDS}
    monkeypatch.setenv("OPENWEATHER_API_KEY", planted["environment"])
    return planted


def forms_of(secret: str) -> list[str]:
    """The secret as a careless tool would print it."""
    raw = secret.encode()
    return [
        secret,
        f"https://api.example/?key={quote(secret, safe='')}",
        quote(secret),
        base64.b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw).decode(),
        base64.urlsafe_b64encode(b"x" + raw).decode(),
        raw.hex(),
        raw.hex().upper(),
        repr(secret),
    ]


def leaking_tools(secrets: dict[str, str]) -> list[Any]:
    everything = [form for secret in secrets.values() for form in forms_of(secret)]

    @tool
    async def leak(ctx: ToolContext) -> AgentToolResult:
        """Prints all that it knows, in pieces and whole, for the model and for people."""
        for form in everything:
            half = len(form) // 2
            ctx.update(f"[{form[:half]}")
            await asyncio.sleep(0)
            ctx.update(f"{form[half:]}]\n")
            ctx.update(AgentToolResult.text(f"again {form}", {"raw": form, "deep": [{form: form}]}))
        return AgentToolResult.text("\n".join(everything), {"everything": everything, "secret": "x", **secrets})

    @tool
    def fail() -> str:
        """Fails, and says with what."""
        raise RuntimeError(f"could not log in with {everything}")

    @tool
    def refuse() -> str:
        """Refuses, and says why."""
        raise ToolError("wrong password: " + " ".join(everything))

    @tool(requires_approval=True)
    def login(user: str, password: str, api_key: str, note: str = "") -> str:
        """Logs in."""
        return f"logged in as {user} with {api_key}; {note}"

    return [leak, fail, refuse, login]


async def test_no_canary_is_in_any_output(world: World, canaries: dict[str, str]) -> None:
    redactor = Redactor()
    for kind in ("registered", "argument"):
        assert redactor.register(canaries[kind], kind)
    known = {kind: secret for kind, secret in canaries.items() if kind != "password"}
    write(world.root / ".env", "\n".join(form for secret in known.values() for form in forms_of(secret)))
    questions: list[Any] = []

    def careless(question: ApprovalQuestion) -> str:
        questions.append(question)
        logging.getLogger("swink_agent").warning("asked: %r, because %s", question, canaries["registered"])
        return "once"

    run = await world.run(
        [call("leak"), call("fail"), call("refuse"), call("read_file", path=".env"), call("bash", command="cat .env")],
        call("login", user="ann", password=canaries["password"], api_key=canaries["argument"], note="x"),
        [think("now I know"), call("search", pattern="cAnary"), call("bash", command="cat .env >&2; exit 3")],
        text("done"),
        tools=[*world.tools(), *leaking_tools(known)],
        answer=careless,
        redactor=redactor,
        stream_options=StreamOptions(
            api_key=canaries["key"],
            headers={"X-Auth-Token": canaries["header"], "Authorization": f"Bearer {canaries['header']}"},
        ),
    )
    assert [event.is_error for event in run.results] == [False, True, True, False, False, False, False, True]
    run.outputs["errors"] = f"{run.result.error} {run.agent.last_error}"
    run.outputs["questions"] = f"{questions} {run.agent.state}"
    run.outputs["results"] = "\n".join(
        encode_message(message).decode() for message in run.result.messages if isinstance(message, ToolResultMessage)
    )
    for one in run.agent.tools:
        getattr(one, "close", lambda: None)()
    found = {kind: leaks(run.outputs, secret) for kind, secret in canaries.items()}
    assert found == {kind: EXPECTED_LEAKS.get(kind, []) for kind in KINDS}


def failing_with(*kinds: ErrorKind) -> Any:
    """A provider that repeats in its errors whatever it was sent, one error after another."""
    left = list(kinds)

    async def stream(model: Any, context: Any, options: StreamOptions, cancel: Any) -> AsyncIterator[Any]:
        yield StreamStart()
        words = [options.api_key or "", *options.headers.values()]
        said = " ".join(form for word in words for form in forms_of(word.removeprefix("Bearer ")))
        if not left:
            raise RuntimeError(f"the client fell over with {said}")
        yield StreamFailed(f"bad request with {said}", left.pop(0))

    return stream


@pytest.mark.parametrize(
    "kinds",
    [(ErrorKind.AUTH,), (ErrorKind.NETWORK, ErrorKind.THROTTLED, ErrorKind.AUTH), (ErrorKind.CONTEXT_OVERFLOW,), ()],
)
async def test_a_provider_that_repeats_what_it_was_sent_is_masked(
    world: World, canaries: dict[str, str], kinds: Any
) -> None:
    async def at_once(seconds: float) -> None:
        await asyncio.sleep(0)

    run = await world.run(
        stream_fn=failing_with(*kinds),
        stream_options=StreamOptions(
            headers={"X-Auth-Token": canaries["header"], "Authorization": f"Bearer {canaries['header']}"}
        ),
        get_api_key=lambda provider: canaries["key"],
        retry_strategy=DefaultRetryStrategy(),
        sleep=at_once,
    )
    assert run.result.error is not None
    try:
        run.result.raise_for_error()
    except Exception as error:
        run.outputs["exception"] = "".join(traceback.format_exception(error))
    run.outputs["errors"] = f"{run.result.error} {run.agent.last_error} {run.result.exception!r}"
    assert {kind: leaks(run.outputs, secret) for kind, secret in canaries.items()} == {kind: [] for kind in KINDS}
    assert "redacted" in run.outputs["errors"]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("status", [401, 400, 500])
@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_the_real_adapters_do_not_tell_their_key(
    world: World, canaries: dict[str, str], api: str, status: int
) -> None:
    key = canaries["key"]
    said = " ".join(forms_of(key))
    make = {"anthropic": AnthropicStreamFn, "openai": OpenAiStreamFn}[api]
    async with FakeProvider(api, [FakeFailure(status, f"the key {said} is wrong")], key=key) as provider:
        adapter = make(provider.url, key)
        run = await world.run(
            stream_fn=adapter, model=f"{api}:model", retry_strategy=DefaultRetryStrategy(max_attempts=1)
        )
        run.outputs["repr"] += repr(adapter)
    run.outputs["errors"] = f"{run.result.error} {run.agent.last_error} {run.result.exception!r}"
    assert run.result.error is not None
    assert leaks(run.outputs, key) == []


@pytest.mark.parametrize("before", [270, 290, 1960, 1990])
async def test_the_real_adapters_do_not_tell_half_of_their_key_where_a_long_error_is_cut(
    world: World, canaries: dict[str, str], before: int
) -> None:
    key = canaries["key"]
    for body in ("x" * before + key, "x " * (before // 2) + key + " y" * 2000):
        async with FakeProvider("openai", [FakeFailure(401, body)], key=key) as provider:
            run = await world.run(
                stream_fn=OpenAiStreamFn(provider.url, key),
                model="openai:model",
                retry_strategy=DefaultRetryStrategy(max_attempts=1),
            )
        said = f"{run.result.error} {run.agent.last_error} {run.result.exception!r}"
        assert "xx" in said or "x x" in said
        assert key[:6] not in said


async def test_a_canary_that_the_model_streams_in_pieces_is_masked_on_its_way_out(
    world: World, canaries: dict[str, str]
) -> None:
    redactor = Redactor([canaries["registered"]])
    replies = [text(f"It is {form}, remember it.", deltas=7) for form in forms_of(canaries["registered"])]
    for said in replies:
        run = await world.run(stream_fn=scripted(said), redactor=redactor, tools=[])
        assert (
            leaks(
                {name: run.outputs[name] for name in ("events", "audit", "checkpoint", "log")}, canaries["registered"]
            )
            == []
        )
        assert "redacted" in run.outputs["events"]


def test_the_canaries_are_the_promised_ones() -> None:
    secret = "a/b+c=d&" * 4
    forms = promised_forms(secret)
    assert all(any(form in said for form in forms) for said in forms_of(secret))


def test_an_error_without_a_key_names_the_variable_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(AuthError, match="ANTHROPIC_API_KEY"):
        stream_fn_for(ModelSpec.parse("anthropic:claude-sonnet-4-6"))
