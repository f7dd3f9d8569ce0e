"""The process that converts one page: HTML on stdin, its URL as the argument, Markdown on stdout.

Runs as `python -I html_process.py`, so it imports nothing of this package. It limits itself: a hostile page can make
any parser slow or large.
"""

import sys

_MOST_MEMORY = 1024 * 1024 * 1024
_MOST_SECONDS = 6
MOST_MARKDOWN = 8 * 1024 * 1024
"""The most bytes that are written: a long base URL can turn the links of a small page into gigabytes."""


def convert_page() -> None:
    """Converts stdin to stdout."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    from html_to_markdown import ConversionOptions, convert

    options = ConversionOptions(
        base_url=sys.argv[1],
        hidden_content="drop",
        extract_metadata=False,
        inline_data_media="alt_text_only",
        exclude_selectors=["script", "style", "template", "noscript", "[hidden]"],
    )
    result = convert(sys.stdin.buffer.read().decode(errors="replace"), options)
    sys.stdout.buffer.write((result.content or "").encode(errors="replace")[: MOST_MARKDOWN + 1])


if __name__ == "__main__":
    convert_page()
