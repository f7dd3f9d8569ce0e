"""Amazon Bedrock: addresses, credentials, and what depends on the model. `tests/wire` has requests and replies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from swink_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    AuthError,
    Base64Image,
    CancellationToken,
    Image,
    ModelSpec,
    StreamOptions,
    Text,
    Thinking,
    ThinkingBudgets,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.adapters.bedrock import BedrockStreamFn
from swink_agent.adapters.kit.http import RequestError
from swink_agent.testing.servers import LoopbackServer, ReceivedRequest, answer
from tests.wire.exchanges import body_of, load, message_of

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
MODEL = ModelSpec("bedrock", CLAUDE)
PIXEL = base64.b64encode(b"\x89PNG").decode()
STREAM = "application/vnd.amazon.eventstream"
CONTEXT = AgentContext("", [UserMessage("hi")])
HELLO = body_of("bedrock", load("bedrock", "text_and_call.reply"))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")


@tool
def clock() -> str:
    """The time."""
    return "noon"


# -- where to and by whom --------------------------------------------------------------------------------------


def test_the_region_and_the_model_make_the_address() -> None:
    request = BedrockStreamFn("eu-west-1").build(MODEL, CONTEXT, StreamOptions())
    assert request.url == f"https://bedrock-runtime.eu-west-1.amazonaws.com/model/{CLAUDE}/converse-stream"
    assert request.headers["accept"] == STREAM


def test_a_profile_is_one_part_of_the_path() -> None:
    profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    request = BedrockStreamFn("us-east-1").build(ModelSpec("bedrock", profile), CONTEXT, StreamOptions())
    assert "/application-inference-profile" not in request.url
    assert request.url.count("/") == 5


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_environment_gives_the_region(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "ap-south-1")
    request = BedrockStreamFn().build(MODEL, CONTEXT, StreamOptions())
    assert request.url.startswith("https://bedrock-runtime.ap-south-1.amazonaws.com/model/")


def test_a_missing_region_is_named() -> None:
    with pytest.raises(RequestError, match="AWS_REGION"):
        BedrockStreamFn().build(MODEL, CONTEXT, StreamOptions())


def test_a_base_url_tells_the_region_that_is_signed_for() -> None:
    url = "https://vpce-1.bedrock-runtime.eu-north-1.vpce.amazonaws.com/"
    request = BedrockStreamFn(base_url=url).build(MODEL, CONTEXT, StreamOptions())
    assert request.url.startswith(f"{url}model/")
    assert "/eu-north-1/bedrock/aws4_request" in request.headers["authorization"]


def test_missing_credentials_are_named_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthError, match="AWS_SECRET_ACCESS_KEY"):
        BedrockStreamFn("us-east-1").build(MODEL, CONTEXT, StreamOptions())
    request = BedrockStreamFn(base_url="http://gateway").build(MODEL, CONTEXT, StreamOptions())
    assert "authorization" not in request.headers


def test_a_bearer_token_takes_the_place_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-environment")
    stream_fn = BedrockStreamFn("us-east-1")
    assert stream_fn.build(MODEL, CONTEXT, StreamOptions()).headers["authorization"] == "Bearer from-environment"
    request = stream_fn.build(MODEL, CONTEXT, StreamOptions(api_key="from-options", headers={"x-trace": "1"}))
    assert (request.headers["authorization"], request.headers["x-trace"]) == ("Bearer from-options", "1")


def test_api_key_is_a_bearer_token_as_in_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-environment")
    stream_fn = BedrockStreamFn(region="us-east-1", api_key="given-here")
    assert stream_fn.build(MODEL, CONTEXT, StreamOptions()).headers["authorization"] == "Bearer given-here"
    request = stream_fn.build(MODEL, CONTEXT, StreamOptions(api_key="from-options"))
    assert request.headers["authorization"] == "Bearer from-options"
    assert "given-here" not in repr(stream_fn)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    BedrockStreamFn(region="us-east-1", api_key="given-here").check(MODEL, StreamOptions())


@pytest.mark.parametrize("empty", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_an_empty_key_is_a_missing_one(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv(empty, "")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "")
    with pytest.raises(AuthError, match="AWS_SECRET_ACCESS_KEY"):
        BedrockStreamFn("us-east-1", api_key="").check(MODEL, StreamOptions(api_key=""))
    request = BedrockStreamFn(base_url="http://gateway").build(MODEL, CONTEXT, StreamOptions())
    assert "authorization" not in request.headers


def test_empty_tokens_do_not_take_the_place_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "")
    headers = BedrockStreamFn("us-east-1").build(MODEL, CONTEXT, StreamOptions()).headers
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKEXAMPLE/")
    assert "x-amz-security-token" not in headers


def test_an_empty_address_or_region_is_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "")
    monkeypatch.setenv("AWS_REGION", "")
    with pytest.raises(RequestError, match="AWS_REGION"):
        BedrockStreamFn().build(MODEL, CONTEXT, StreamOptions())
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    request = BedrockStreamFn("", "").build(MODEL, CONTEXT, StreamOptions())
    assert request.url.startswith("https://bedrock-runtime.ap-south-1.amazonaws.com/model/")


def test_without_botocore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(RequestError, match=r"pip install 'swink-agent\[bedrock\]'"):
        BedrockStreamFn("us-east-1").build(MODEL, CONTEXT, StreamOptions())


def test_keys_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-secret")
    stream_fn = BedrockStreamFn("us-east-1")
    request = stream_fn.build(MODEL, CONTEXT, StreamOptions())
    assert request.headers["x-amz-security-token"] == "session-secret"
    for shown in (repr(stream_fn), repr(request), str(request.headers)):
        assert "very-secret" not in shown
    assert "session-secret" not in repr(request)


def signature_of(request: ReceivedRequest) -> str:
    """The signature that AWS would calculate for what it received."""
    found = re.search(
        r"Credential=\w+/((\d+)/([\w-]+)/bedrock/aws4_request), SignedHeaders=([\w;-]+)",
        request.headers["authorization"],
    )
    assert found is not None
    scope, date, region, names = found.groups()
    lines = [request.method, quote(request.path, safe="/-_.~"), ""]
    lines += [f"{name}:{request.headers[name]}" for name in names.split(";")]
    lines += ["", names, hashlib.sha256(request.body).hexdigest()]
    canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = b"AWS4very-secret"
    for part in (date, region, "bedrock", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{canonical}"
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


@pytest.mark.parametrize("model_id", [CLAUDE, "arn:aws:bedrock:us-east-1:1:inference-profile/us.x v1:0", "plain"])
async def test_the_signature_is_over_what_is_sent(model_id: str) -> None:
    async with LoopbackServer(answer(HELLO, content_type=STREAM)) as server:
        stream_fn = BedrockStreamFn("us-west-2", server.url)
        model = ModelSpec("bedrock", model_id)
        events = [item async for item in stream_fn(model, CONTEXT, StreamOptions(), CancellationToken())]
    assert message_of(events).text == "Hello"
    received = server.requests[0]
    assert received.headers["authorization"].endswith(f"Signature={signature_of(received)}")


# -- the request -----------------------------------------------------------------------------------------------


def sent(
    messages: Sequence[AgentMessage] | str = "hi",
    *,
    model: str = CLAUDE,
    system: str = "",
    tools: Sequence[Any] = (),
    level: ThinkingLevel = ThinkingLevel.OFF,
    budgets: dict[ThinkingLevel, int] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The body that is sent for a conversation."""
    spec = ModelSpec("bedrock", model, level, ThinkingBudgets(budgets) if budgets else None)
    if isinstance(messages, str):
        messages = [UserMessage(messages)]
    request = BedrockStreamFn("us-east-1").build(
        spec, AgentContext(system, messages, tools), StreamOptions(**{"api_key": "t", **options})
    )
    return json.loads(request.body)


def contents(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(message["role"], message["content"]) for message in body["messages"]]


def reply(*blocks: Any, provider: str = "bedrock", model_id: str = CLAUDE, **fields: Any) -> AssistantMessage:
    return AssistantMessage(blocks, provider, model_id, **fields)


def test_options_and_extra_fields_go_where_they_belong() -> None:
    body = sent(
        model=NOVA,
        system="Be brief.",
        temperature=0.5,
        max_tokens=100,
        extra={"guardrailConfig": {"guardrailIdentifier": "g"}, "inferenceConfig": {"topP": 0.9}},
    )
    assert body["inferenceConfig"] == {"maxTokens": 100, "temperature": 0.5, "topP": 0.9}
    assert body["guardrailConfig"] == {"guardrailIdentifier": "g"}
    assert body["system"] == [{"text": "Be brief."}]
    assert list(body)[-1] == "messages"


def test_calls_in_the_history_define_their_tools_whatever_is_on_offer() -> None:
    history = [UserMessage("time?"), reply(ToolCall("c1", "clock", {})), ToolResultMessage("c1", "noon")]
    (stub,) = sent(history, cache="none")["toolConfig"]["tools"]
    assert (stub["toolSpec"]["name"], stub["toolSpec"]["inputSchema"]) == ("clock", {"json": {"type": "object"}})
    offered = sent(history, tools=[clock], tool_choice="none", cache="none")["toolConfig"]
    assert [entry["toolSpec"]["description"] for entry in offered["tools"]] == ["The time."]


@pytest.mark.table
@pytest.mark.parametrize(
    ("model", "takes_marks"),
    [
        (CLAUDE, True),
        ("anthropic.claude-opus-4-6-v1", True),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", True),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", False),
        ("anthropic.claude-3-haiku-20240307-v1:0", False),
        ("anthropic.claude-v2:1", False),
        (NOVA, False),
    ],
)
def test_only_models_that_take_cache_points_are_sent_any(model: str, takes_marks: bool) -> None:
    assert ("cachePoint" in json.dumps(sent(model=model, system="s"))) is takes_marks


def test_claude_is_asked_to_think_in_its_own_fields() -> None:
    body = sent(level=ThinkingLevel.MEDIUM, temperature=0.3)
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 8_192}}
    assert body["inferenceConfig"] == {"maxTokens": 64_000}
    own = sent(level=ThinkingLevel.LOW, budgets={ThinkingLevel.LOW: 3_000})
    assert own["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 3_000
    newer = sent(model="us.anthropic.claude-opus-4-6-v1", level=ThinkingLevel.HIGH)
    assert newer["additionalModelRequestFields"] == {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "high"},
    }


def test_other_families_are_asked_to_think_in_theirs() -> None:
    nova = sent(model="us.amazon.nova-2-lite-v1:0", level=ThinkingLevel.LOW, max_tokens=50)
    assert nova["additionalModelRequestFields"]["reasoningConfig"] == {"type": "enabled", "maxReasoningEffort": "low"}
    assert nova["inferenceConfig"] == {"maxTokens": 50}
    hard = sent(model="us.amazon.nova-2-lite-v1:0", level=ThinkingLevel.HIGH, max_tokens=50, temperature=0.1)
    assert "inferenceConfig" not in hard
    gpt = sent(model="openai.gpt-oss-120b-1:0", level=ThinkingLevel.EXTRA_HIGH)
    assert gpt["additionalModelRequestFields"] == {"reasoning_effort": "high"}
    assert "additionalModelRequestFields" not in sent(model=NOVA, level=ThinkingLevel.HIGH)


def test_reasoning_goes_to_no_other_family() -> None:
    calls = [UserMessage("hi"), reply(Thinking("hm", "s"), ToolCall("a", "clock", {})), ToolResultMessage("a", "noon")]
    assert [next(iter(block)) for block in contents(sent(calls, model=NOVA))[1][1]] == ["toolUse"]
    own = [UserMessage("hi"), reply(Thinking("hm", "s"), Text("hello"), model_id=NOVA), UserMessage("and?")]
    assert contents(sent(own, model=NOVA))[1][1] == [{"text": "hello"}]
    foreign = [
        UserMessage("hi"),
        reply(Thinking("hm", "s"), Text("hello"), provider="gemini", model_id="g"),
        UserMessage("?"),
    ]
    assert contents(sent(foreign))[1][1] == [{"text": "hello"}]


def test_reasoning_of_claude_at_another_provider_goes_along() -> None:
    history = [
        UserMessage("hi"),
        reply(Thinking("hm", "sig"), Text("hello"), provider="anthropic", model_id="claude-sonnet-4-6"),
        UserMessage("and?"),
    ]
    assert contents(sent(history))[1][1][0] == {
        "reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}
    }


def test_a_note_stands_for_a_picture_in_a_format_that_is_not_taken() -> None:
    ((_, blocks),) = contents(sent([UserMessage([Image(Base64Image("image/tiff", PIXEL))])], cache="none"))
    assert blocks == [{"text": "[image left out: image/tiff is not taken here, only PNG, JPEG, GIF and WebP]"}]
