"""Checks the signature of a request to AWS, version 4, for the fake of Bedrock."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import quote

from swink_agent.testing.servers import ReceivedRequest

_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)"
    r"/aws4_request, ?SignedHeaders=(?P<headers>[a-z0-9;-]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


def signature_problem(request: ReceivedRequest, secret: str, service: str) -> str | None:
    """Returns what is wrong with the signature, or `None`."""
    match = _HEADER.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        return "the request is not signed"
    if match["service"] != service:
        return f"credential should be scoped to the service {service}, not {match['service']}"
    names = match["headers"].split(";")
    if "host" not in names:
        return "the host header must be signed"
    time = request.headers.get("x-amz-date", "")
    if not time.startswith(match["date"]):
        return "the date of the credential is not that of the request"
    scope = f"{match['date']}/{match['region']}/{service}/aws4_request"
    canonical = hashlib.sha256(_canonical(request, names).encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in (
        match["date"],
        match["region"],
        service,
        "aws4_request",
        f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}",
    ):
        key = hmac.digest(key, part.encode(), "sha256")
    if not hmac.compare_digest(key.hex(), match["signature"]):
        return "the request signature we calculated does not match the signature you provided"
    return None


def _canonical(request: ReceivedRequest, names: list[str]) -> str:
    """Returns the text that was signed; the path, which is encoded, is encoded once more."""
    path, _, query = request.path.partition("?")
    lines = [request.method, quote(path, safe="/-_.~"), "&".join(sorted(query.split("&"))) if query else ""]
    lines += [f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in names]
    lines += ["", ";".join(names), hashlib.sha256(request.body).hexdigest()]
    return "\n".join(lines)
