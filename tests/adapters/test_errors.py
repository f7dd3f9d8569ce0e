"""The kind of a provider's error: by its status first, then by its text, however it is wrapped."""

from __future__ import annotations

import json
import math
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import ErrorKind
from swink_agent.adapters.kit.errors import classify, classify_error, retry_after

thoroughly = settings(max_examples=150)

KINDS = (
    ErrorKind.THROTTLED,
    ErrorKind.CONTEXT_OVERFLOW,
    ErrorKind.AUTH,
    ErrorKind.CONTENT_FILTERED,
    ErrorKind.NETWORK,
    ErrorKind.INVALID_REQUEST,
)


def kind_of(status: int, document: Any) -> ErrorKind:
    return classify(status, json.dumps(document).encode())[1]


# -- by status -----------------------------------------------------------------------------------------------

BY_STATUS = {
    400: ErrorKind.INVALID_REQUEST,
    401: ErrorKind.AUTH,
    402: ErrorKind.INVALID_REQUEST,
    403: ErrorKind.AUTH,
    404: ErrorKind.INVALID_REQUEST,
    405: ErrorKind.INVALID_REQUEST,
    408: ErrorKind.NETWORK,
    409: ErrorKind.INVALID_REQUEST,
    415: ErrorKind.INVALID_REQUEST,
    422: ErrorKind.INVALID_REQUEST,
    429: ErrorKind.THROTTLED,
    451: ErrorKind.INVALID_REQUEST,
    500: ErrorKind.NETWORK,
    501: ErrorKind.NETWORK,
    502: ErrorKind.NETWORK,
    503: ErrorKind.NETWORK,
    504: ErrorKind.NETWORK,
    520: ErrorKind.NETWORK,
    529: ErrorKind.NETWORK,
    599: ErrorKind.NETWORK,
}


@pytest.mark.table
@pytest.mark.parametrize("body", [b"", b"oops", b'{"error":{"message":"oops"}}', b"<h1>oops</h1>", b"\xff\xfe"])
@pytest.mark.parametrize(("status", "kind"), BY_STATUS.items())
def test_a_status_has_its_kind_whatever_the_form_of_the_body(status: int, kind: ErrorKind, body: bytes) -> None:
    message, found = classify(status, body)
    assert found == kind
    assert message.startswith(f"HTTP {status}")


@pytest.mark.table
@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long for this context window",
        "invalid api key",
        "stopped by the content filter",
        "the server is overloaded",
        "rate limit reached",
    ],
)
@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 503, 529])
def test_a_status_that_says_it_all_outweighs_the_words(status: int, words: str) -> None:
    assert kind_of(status, {"error": {"message": words, "code": words}}) == BY_STATUS[status]


# -- by words ------------------------------------------------------------------------------------------------

OVERFLOWS = {
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
    "openai code": {"error": {"message": "It does not fit.", "code": "context_length_exceeded"}},
    "openai words": {"error": {"message": "Your input exceeds the context window of the model."}},
    "azure": {"error": {"code": "400", "message": "This model's maximum context length is 8 tokens, you sent 9"}},
    "gemini": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (9) is over 8"}},
    "bedrock": {"message": "Input is too long for requested model."},
    "bedrock total": {"message": "too many input tokens: 9 of 8"},
    "mistral": {
        "object": "error",
        "message": "9 tokens, for a model of 8 maximum context length",
        "code": 3051,
    },
    "groq": {"error": {"message": "Please reduce the length of the messages or completion."}},
    "llama.cpp": {"error": {"code": 400, "type": "exceed_context_size_error", "message": "9 tokens, but 8 are there"}},
    "ollama": {"error": "prompt too long; 9 of 8"},
    "openrouter": {"error": {"code": 400, "message": "This endpoint's maximum context length is 8 tokens."}},
    "lm studio": {"error": "The number of tokens is greater than the context length."},
    "as a list": [{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum (8)."}}],
}


@pytest.mark.table
@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_input_that_is_too_long_is_known_by_each_providers_wording(name: str) -> None:
    document = OVERFLOWS[name]
    assert kind_of(400, document) == ErrorKind.CONTEXT_OVERFLOW
    assert classify_error(document[0] if isinstance(document, list) else document)[1] == ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum prompt length is 8 but the request contains 9 tokens.",
        "The request exceeded model token limit: 8",
        "request (9 tokens) exceeds the available context size (8 tokens)",
    ],
    ids=["xai", "kimi", "llama.cpp without its type"],
)
def test_an_input_that_is_too_long_is_known_by_further_wordings(words: str) -> None:
    assert kind_of(400, {"error": words}) == ErrorKind.CONTEXT_OVERFLOW


MORE_OVERFLOWS = {
    "bedrock nova": "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Update the input.",
    "bedrock titan": "400 Bad Request: Too many input tokens. Max input tokens: 8, request input token count: 9",
    "bedrock claude": "input length and `max_tokens` exceed context limit: 9 + 8 > 16",
    "copilot": "prompt token count of 9 exceeds the limit of 8",
    "copilot code": "model_max_prompt_tokens_exceeded",
    "vllm": "The decoder prompt (length 9) is longer than the maximum model length of 8.",
    "vllm older": "This model's maximum context length is 8 tokens. However, you requested 9 tokens.",
    "sglang": "The input (9 tokens) is longer than the model's context length (8 tokens).",
    "sglang total": "Requested token count exceeds the model's maximum context length of 8 tokens.",
    "lm studio": "Trying to keep the first 9 tokens when context the overflows. However, the model is loaded with "
    "context length of only 8 tokens",
    "text-generation-inference": "Input validation error: `inputs` must have less than 8 tokens. Given: 9",
    "together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8. Given: 7 `inputs` tokens",
    "fireworks": "The prompt is too long: 9, model maximum context length: 8",
    "cohere": "too many tokens: total number of tokens in the prompt cannot exceed 8 - received 9.",
    "dashscope": "Range of input length should be [1, 8]",
    "minimax": "invalid params, context window exceeds limit",
    "z.ai": "model_context_window_exceeded",
    "gemini by size": "Request payload size exceeds the limit: 20971520 bytes.",
    "anthropic by size": "Request exceeds the maximum size",
    "poolside": "The input exceeds the maximum allowed input length of 8 tokens.",
    "litellm": "ContextWindowExceededError: it does not fit",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 9 while limit is 8",
}


@pytest.mark.table
@pytest.mark.parametrize("name", MORE_OVERFLOWS)
def test_an_overflow_is_one_in_an_answer_and_in_a_stream_but_never_with_429(name: str) -> None:
    words = MORE_OVERFLOWS[name]
    assert kind_of(400, {"error": {"message": words}}) == ErrorKind.CONTEXT_OVERFLOW
    assert kind_of(422, {"message": words}) == ErrorKind.CONTEXT_OVERFLOW
    assert classify_error({"type": "invalid_request_error", "message": words})[1] == ErrorKind.CONTEXT_OVERFLOW
    assert kind_of(429, {"error": {"message": words}}) == ErrorKind.THROTTLED
    assert classify_error({"code": 429, "message": words})[1] == ErrorKind.THROTTLED


@pytest.mark.table
@pytest.mark.parametrize(
    "words",
    [
        "Unknown parameter: 'context_window'.",
        "Unrecognized request argument supplied: max_model_len",
        "property 'context_length' is unsupported",
        "max_tokens: 99 > 64, which is the maximum allowed number of output tokens for the model",
        "max_tokens is too large: 99. This model supports at most 64 completion tokens.",
        "messages.0.content: Input should be a valid string",
        "tools.0.name: string should have at most 64 characters",
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64.",
        "image exceeds 5 MB maximum: 9 bytes > 8 bytes",
        "The model 'long-context' does not exist",
        "too many images in the request: 21 > 20",
        "temperature must be less than or equal to 1",
    ],
)
def test_other_limits_are_not_overflows(words: str) -> None:
    assert kind_of(400, {"error": {"message": words}}) == ErrorKind.INVALID_REQUEST
    assert classify_error({"type": "invalid_request_error", "message": words})[1] == ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    "words",
    [
        "Too many tokens, please wait before trying again.",
        "This request would exceed the rate limit of 30,000 input tokens per minute.",
        "Rate limit reached on tokens per min (TPM): Limit 8, Used 7, Requested 9.",
        "Quota exceeded for input tokens per minute",
    ],
)
def test_a_limit_of_tokens_per_minute_is_not_an_overflow(words: str) -> None:
    assert kind_of(429, {"message": words}) == ErrorKind.THROTTLED
    assert classify_error({"type": "rate_limit_error", "message": words})[1] == ErrorKind.THROTTLED


BAD_KEYS = {
    "gemini words": {"error": {"code": 400, "message": "API key not valid. Please pass another."}},
    "gemini reason": {
        "error": {
            "code": 400,
            "message": "No.",
            "details": [{"@type": "type.example/Help"}, {"reason": "API_KEY_INVALID"}],
        }
    },
    "xai": {"code": "Client specified an invalid argument", "error": "Incorrect API key provided."},
    "bedrock token": {"__type": "ExpiredTokenException", "message": "It is over."},
    "bedrock client": {"__type": "UnrecognizedClientException", "message": "Who are you?"},
    "bedrock signature": {"message": "Signature expired: yesterday"},
    "cerebras": {"message": "Wrong API Key", "code": "wrong_api_key"},
}


@pytest.mark.table
@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_bad_key_with_status_400_is_an_auth_error(name: str) -> None:
    assert kind_of(400, BAD_KEYS[name]) == ErrorKind.AUTH


FILTERED = {
    "azure code": {"error": {"code": "content_filter", "message": "No.", "innererror": {}}},
    "azure words": {"error": {"message": "It was stopped by the content management policy."}},
    "openai": {"error": {"message": "Rejected by the safety system.", "code": "content_policy_violation"}},
    "gemini": {"error": {"message": "PROHIBITED_CONTENT"}},
    "bedrock": {"message": "The request was blocked by a guardrail."},
}


@pytest.mark.parametrize("name", FILTERED)
def test_a_filter_is_known_by_each_providers_wording(name: str) -> None:
    assert kind_of(400, FILTERED[name]) == ErrorKind.CONTENT_FILTERED
    assert classify_error(FILTERED[name])[1] == ErrorKind.CONTENT_FILTERED


@pytest.mark.parametrize(
    "error",
    [
        {"code": "invalid_prompt", "message": "Your prompt was flagged as against our usage policy."},
        {"code": "data_inspection_failed", "message": "The input may hold inappropriate content."},
    ],
    ids=["openai", "alibaba"],
)
def test_a_filter_is_known_by_further_wordings(error: dict[str, str]) -> None:
    assert classify_error(error)[1] == ErrorKind.CONTENT_FILTERED


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "Unknown parameter: 'temprature'.", "type": "invalid_request_error"}},
        {"error": {"message": "The model 'gpt-9' does not exist", "code": "model_not_found"}},
        {"error": "model 'llama9' not found"},
        {"detail": [{"loc": ["body", "tools"], "msg": "Field required", "type": "missing"}]},
        {"message": "1 validation error detected", "__type": "ValidationException"},
    ],
)
def test_a_mistake_of_ours_is_an_invalid_request(document: Any) -> None:
    assert kind_of(400, document) == ErrorKind.INVALID_REQUEST
    assert kind_of(404, document) == ErrorKind.INVALID_REQUEST
    assert kind_of(422, document) == ErrorKind.INVALID_REQUEST


# -- errors inside a stream ----------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ErrorKind.NETWORK),
        ({"type": "api_error", "message": "Something broke"}, ErrorKind.NETWORK),
        ({"type": "rate_limit_error", "message": "Slowly"}, ErrorKind.THROTTLED),
        ({"type": "authentication_error", "message": "Who?"}, ErrorKind.AUTH),
        ({"type": "permission_denied", "message": "No"}, ErrorKind.AUTH),
        ({"type": "server_error", "code": None, "message": "Sorry"}, ErrorKind.NETWORK),
        ({"code": "rate_limit_exceeded", "message": "Slowly"}, ErrorKind.THROTTLED),
        ({"code": "insufficient_quota", "message": "Pay first"}, ErrorKind.THROTTLED),
        ({"__type": "ThrottlingException", "message": "Slowly"}, ErrorKind.THROTTLED),
        ({"__type": "ModelStreamErrorException", "message": "Broken"}, ErrorKind.NETWORK),
        ({"__type": "ServiceUnavailableException"}, ErrorKind.NETWORK),
        ({"status": "RESOURCE_EXHAUSTED", "message": "Resource has been exhausted"}, ErrorKind.THROTTLED),
        ({"status": "UNAVAILABLE", "message": "Come back later"}, ErrorKind.NETWORK),
        ({"code": 429, "message": "-"}, ErrorKind.THROTTLED),
        ({"code": "429", "message": "-"}, ErrorKind.THROTTLED),
        ({"code": 502, "message": "Upstream failed"}, ErrorKind.NETWORK),
        ({"code": 401, "message": "-"}, ErrorKind.AUTH),
        ({"code": 400, "message": "prompt is too long"}, ErrorKind.CONTEXT_OVERFLOW),
        ({"status": 503, "message": "-"}, ErrorKind.NETWORK),
        ({"http_code": 500, "message": "-"}, ErrorKind.NETWORK),
        ({"error": {"code": 529, "message": "-"}}, ErrorKind.NETWORK),
        ({"error": "the request timed out"}, ErrorKind.NETWORK),
        ("too many requests", ErrorKind.THROTTLED),
        ("the service is unavailable", ErrorKind.NETWORK),
        ({"message": "tool schema is wrong", "type": "invalid_request_error"}, ErrorKind.INVALID_REQUEST),
        ({"code": 1234, "message": "-"}, ErrorKind.INVALID_REQUEST),
        ({}, ErrorKind.INVALID_REQUEST),
        (None, ErrorKind.INVALID_REQUEST),
    ],
)
def test_an_error_object_in_a_stream_has_its_kind(error: Any, kind: ErrorKind) -> None:
    message, found = classify_error(error)
    assert found == kind
    assert message


@pytest.mark.table
@pytest.mark.parametrize(
    "odd", ["¹", "²²²", "٤٢٩", "429.0", "4" * 5000, "", -1, 10**30, 1e300, True, [], {}, [429], None]
)
@pytest.mark.parametrize("field", ["code", "status", "http_code"])
def test_an_invalid_status_leaves_the_words(field: str, odd: Any) -> None:
    assert classify_error({field: odd, "message": "prompt is too long"})[1] == ErrorKind.CONTEXT_OVERFLOW
    assert classify_error({"error": {field: odd, "message": "Slowly", "type": "rate_limit_error"}})[1] == (
        ErrorKind.THROTTLED
    )
    assert kind_of(400, {"error": {field: odd, "message": "No."}}) == ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"odd": {"a": [1]}}, '{"odd":{"a":[1]}}'),
        ({"error": [{"message": "in a list", "code": 429}]}, "in a list"),
        ({"message": {"text": "an object"}}, '{"text":"an object"}'),
        ({"message": 7}, "7"),
        (7, "7"),
    ],
)
def test_an_error_of_an_odd_shape_is_shown_as_json(error: Any, shown: str) -> None:
    assert classify_error(error)[0] == shown


@pytest.mark.parametrize(
    "body", [b'{"error":{"message":"No.","n":1e999}}', b'{"error":{"message":"No.","n":%b}}' % (b"9" * 4000)]
)
def test_a_number_out_of_range_does_not_hide_the_message(body: bytes) -> None:
    assert classify(400, body) == ("HTTP 400: No.", ErrorKind.INVALID_REQUEST)


def test_words_of_the_request_do_not_make_a_code_a_network_failure() -> None:
    error = {"type": "invalid_request_error", "message": "tools.0: 'timeout' is no property"}
    assert classify_error(error)[1] == ErrorKind.INVALID_REQUEST


# -- what is shown -------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"error": {"message": "in an object"}}, "in an object"),
        ({"error": "as a string"}, "as a string"),
        ({"message": "at the top"}, "at the top"),
        ({"Message": "with a capital"}, "with a capital"),
        ({"detail": "as a detail"}, "as a detail"),
        ({"msg": "for short"}, "for short"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ("alone", "alone"),
        ({"detail": [{"msg": "in parts"}]}, '[{"msg":"in parts"}]'),
        ({"other": "in its own words"}, '{"other": "in its own words"}'),
        (None, "null"),
        ([], "[]"),
        (7, "7"),
    ],
)
def test_the_message_is_found_however_it_is_wrapped(document: Any, shown: str) -> None:
    assert classify(400, json.dumps(document).encode())[0] == f"HTTP 400: {shown}"


def test_an_empty_body_leaves_the_status() -> None:
    assert classify(503, b"") == ("HTTP 503", ErrorKind.NETWORK)
    assert classify(503, b" \r\n ") == ("HTTP 503", ErrorKind.NETWORK)


def test_a_page_is_shown_as_its_text() -> None:
    page = b"<!DOCTYPE html><html><head><title>502</title><style>p { color: red }</style></head>\n<body>\n"
    page += b"<script>let a = '<p>';</script><h1>Bad   Gateway</h1>\n<p>nginx</p></body></html>"
    assert classify(502, page) == ("HTTP 502: 502 Bad Gateway nginx", ErrorKind.NETWORK)


def test_a_page_can_say_that_the_input_is_too_long() -> None:
    assert classify(400, b"<html>Input is too long for requested model.</html>")[1] == ErrorKind.CONTEXT_OVERFLOW


def test_long_messages_are_cut() -> None:
    for body in (json.dumps({"error": {"message": "x" * 50_000}}).encode(), b"x" * 50_000, b"<p>" + b"x" * 50_000):
        message, _ = classify(400, body)
        assert len(message) < 2_100
    assert len(classify_error({"message": "x" * 50_000})[0]) == 2_000


@pytest.mark.parametrize("tag", [b"<", b"<script"])
def test_a_page_of_unfinished_tags_costs_no_more_than_any_other(tag: bytes) -> None:
    body = tag * (32 * 1024 // len(tag))
    took: list[float] = []
    for _ in range(5):
        start = time.process_time()
        classify(502, body)
        took.append(time.process_time() - start)
    assert min(took) < 0.1


# -- status 200 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"error": {"message": "prompt is too long"}}, ErrorKind.CONTEXT_OVERFLOW),
        ({"error": {"code": 429, "message": "Slowly"}}, ErrorKind.THROTTLED),
        ({"error": {"code": 401, "message": "Who?"}}, ErrorKind.AUTH),
        ([{"error": {"code": 503, "status": "UNAVAILABLE", "message": "Later"}}], ErrorKind.NETWORK),
        ({"base_resp": {"status_code": 1004}}, ErrorKind.INVALID_REQUEST),
    ],
)
def test_an_error_document_with_status_200_is_known_by_its_words(document: Any, kind: ErrorKind) -> None:
    message, found = classify(200, json.dumps(document).encode())
    assert found == kind
    assert not message.startswith("HTTP")


@pytest.mark.parametrize("body", [b"", b"<html><body>Sign in to the WiFi</body></html>", b"hello", b"\xff"])
def test_anything_else_with_status_200_asks_for_the_url(body: bytes) -> None:
    message, kind = classify(200, body)
    assert kind == ErrorKind.NETWORK
    assert "URL" in message
    assert len(message) < 200


# -- Retry-After ---------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "120"}, 0.12),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "2", "retry-after-ms": "1800"}, 2.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_seconds_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize("zone", ["GMT", "+0000", "-0000"])
def test_a_date_is_counted_from_now(zone: str) -> None:
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True).replace("GMT", zone)
    assert retry_after({"retry-after": value}) == pytest.approx(90, abs=3)


@pytest.mark.parametrize("value", ["1e300", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_absurd_wait_is_a_long_one_that_a_clock_can_hold(value: str) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is not None
    assert 10**9 < seconds < 10**11
    assert timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["nan", "-inf", "-1e300", "-5"])
def test_an_invalid_wait_is_ignored(value: str) -> None:
    assert retry_after({"retry-after": value}) in (None, 0.0)


@pytest.mark.parametrize("value", ["inf", "1e999", "Mon, 01 Jan 2024 00:00:00 +99999999999999999"])
def test_no_value_means_to_wait_for_ever(value: str) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is None or math.isfinite(seconds)


def test_a_value_that_cannot_be_read_leaves_the_other_header() -> None:
    assert retry_after({"retry-after": "soon", "retry-after-ms": "500"}) == 0.5


DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", re.ASCII)


@given(st.text(max_size=30) | st.from_regex(DATE))
@thoroughly
def test_any_header_is_seconds_or_nothing(value: str) -> None:
    seconds = retry_after({"retry-after": value})
    assert seconds is None or seconds >= 0


# -- anything ------------------------------------------------------------------------------------------------

JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "status", "details", "reason", "detail", "msg"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON_VALUE, st.sampled_from([200, 302, 400, 401, 404, 408, 413, 429, 500, 529]))
@thoroughly
def test_any_document_is_a_message_and_a_kind(document: Any, status: int) -> None:
    message, kind = classify(status, json.dumps(document).encode())
    assert message
    assert kind in KINDS
    message, kind = classify_error(document)
    assert message
    assert kind in KINDS


@given(st.binary(max_size=100), st.integers(100, 599))
@thoroughly
def test_any_body_is_a_message_and_a_kind(body: bytes, status: int) -> None:
    message, kind = classify(status, body)
    assert message
    assert kind in KINDS


@pytest.mark.parametrize("status", [200, 400])
def test_a_document_that_is_too_deep_is_an_error_like_any_other(status: int) -> None:
    message, kind = classify(status, b'{"error":' + b"[" * 30_000 + b"]" * 30_000 + b"}")
    assert message
    assert kind in KINDS
