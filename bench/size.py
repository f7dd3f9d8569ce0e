"""Counts lines and code tokens by part of the library: how much a reader has to read.

python -m bench.size                  the packages of this tree, and the parts of `core`, `memory` and `policies`
python -m bench.size ../other         the same for another tree, such as an older version
python -m bench.size --files core     each file of a package

Lines are all lines of a file. Tokens are those of its code: comments, docstrings and imports are left out, as are
indentation and line ends, so neither explanations nor formatting count.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DIVIDED = ("core", "memory", "policies")
"""The packages whose parts are shown too."""
_LAYOUT = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
})  # fmt: skip


class Size(NamedTuple):
    files: int = 0
    lines: int = 0
    tokens: int = 0

    def plus(self, other: Size) -> Size:
        return Size(self.files + other.files, self.lines + other.lines, self.tokens + other.tokens)


def _left_out(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """The first and last lines of docstrings and imports. A string that is a statement counts as a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (isinstance(node, ast.Expr) and _is_text(node.value)):
            yield node.lineno, node.end_lineno or node.lineno


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def size_of(text: str) -> Size:
    """The size of one file."""
    left_out = {line for first, last in _left_out(ast.parse(text)) for line in range(first, last + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    count = sum(token.type not in _LAYOUT and token.start[0] not in left_out for token in tokens)
    return Size(1, text.count("\n"), count)


def sizes(package: Path, shown: str = "") -> dict[str, Size]:
    """The sizes by part, in alphabetical order. If a package is `shown`, its files are the parts."""
    found: defaultdict[str, Size] = defaultdict(Size)
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        size = size_of(path.read_text(encoding="utf-8"))
        if shown:
            if parts[0] == shown:
                found["/".join(parts)] = size
            continue
        top = parts[0] if len(parts) > 1 else "."
        found[top] = found[top].plus(size)
        if top in DIVIDED:
            part = f"{top}/{parts[1] if len(parts) > 2 else '*.py'}"
            found[part] = found[part].plus(size)
        found["all"] = found["all"].plus(size)
    return dict(sorted(found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.size", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", nargs="?", default=Path(__file__).parents[1], type=Path, help="the tree to count")
    parser.add_argument("--files", default="", metavar="PACKAGE", help="count each file of this package")
    options = parser.parse_args()
    print(f"| {'part':28} | files |   lines |  tokens |\n|{'-' * 30}|------:|--------:|--------:|")
    for name, size in sizes(options.tree / "src" / "swink_agent", options.files).items():
        print(f"| {name:28} | {size.files:5} | {size.lines:7,} | {size.tokens:7,} |")


if __name__ == "__main__":
    main()
