"""Measures the cost of masking, and checks that it grows linearly with any kind of text.

    python -m bench.redaction [--quick] [--check]

Each row is one kind of text, ordinary or made to be slow: near-matches by the megabyte. The last figure matters most:
the cost of a text of twice the size, divided by twice the cost. 1 is linear, 2 is quadratic.
"""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Callable

from swink_agent import Redactor

from .__main__ import print_table

SECRETS = {f"SERVICE_{number}_TOKEN": f"kx7Qp2vLm9-{number * 7919}-Zt4Rw8Yb3" for number in range(8)}
REPEATED = "a" * 40 + "b"
MOST_GROWTH = 1.5
MOST_PER_MEGABYTE = 2.0
"""Seconds, on whatever machine this is: a bound against hanging, not a promise of speed."""

TEXTS: dict[str, str] = {
    "source code": 'def total(items: list[int]) -> int:\n    """The sum."""\n    return sum(x for x in items)\n\n',
    "a log": "2026-01-01T00:00:00Z INFO http://host:8080/path?id=4711 200 GET key=value token: none\n",
    "one letter": "a",
    "base64 in lines": base64.encodebytes(bytes(range(256))).decode(),
    "almost the secret": f"{next(iter(SECRETS.values()))[:-1]} ",
    "almost a repeated secret": "a",
    "beginnings of private keys": "-----BEGIN PRIVATE KEY-----\n",
    "ends of private keys": "-----END PRIVATE KEY-----\n",
    "beginnings of web tokens": "-eyJ",
    "web tokens without an end": "eyJhbGciOiJIUzI1NiJ9.eyJhbGciOiJIUzI1NiJ9 ",
    "beginnings of keys": "sk-",
    "addresses without an end": "x://u:p",
    "authorization and spaces": "authorization" + " " * 80,
    "names and no values": "password=",
    "options": " --token ",
    "quotation marks": "key='",
    "placeholders": "[redacted:key:0123abcd] ",
    "hexadecimal": "0x6b, ",
    "a dump": "00000000: 6b78 3751 7032 764c 6d39 2d5a 7434 5277  kx7Qp2vLm9-Zt4Rw\n",
    "backslashes": "\\",
    "per cent": "%2B%",
}


def seconds(function: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def streamed(redactor: Redactor, text: str) -> None:
    stream = redactor.stream()
    for at in range(0, len(text), 4096):
        stream.feed(text[at : at + 4096])
    stream.finish()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.redaction", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the text, once")
    parser.add_argument("--check", action="store_true", help="exit 1 if a row grows faster than its text")
    options = parser.parse_args()
    size, repeats = (256 * 1024, 2) if options.quick else (1024 * 1024, 3)
    redactor = Redactor([REPEATED], environment=SECRETS)
    rows = [["text", "ms per MB", "of twice the text", "in chunks, ms per MB", "of twice the text"]]
    missed: list[str] = []
    for name, unit in TEXTS.items():
        row = [name]
        for work in (redactor.redact, lambda text: streamed(redactor, text)):
            long = (unit * (2 * size // len(unit) + 1))[: 2 * size]
            one, two = seconds(lambda: work(long[:size]), repeats), seconds(lambda: work(long), repeats)  # noqa: B023
            growth = two / (2 * one)
            row += [f"{one * 1e3 * 1024 * 1024 / size:.0f}", f"{growth:.2f}"]
            if growth > MOST_GROWTH or one * 1024 * 1024 / size > MOST_PER_MEGABYTE:
                missed.append(name)
        rows.append(row)
    print_table(rows)
    for name in dict.fromkeys(missed):
        print(f"not linear, or too slow: {name}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
