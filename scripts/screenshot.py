"""Makes docs/screenshot.svg: the terminal UI after a small task, drawn by the program itself.

    python scripts/screenshot.py

The model is a script and the folder a temporary one, so that the picture is the same wherever it is made. Fonts are the
reader's own: nothing in the file is loaded from elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.runs.sessions import WantedSession
from swink_agent.app.talk.options import TalkOptions
from swink_agent.testing import call, scripted, text
from swink_agent.tui.app import SwinkApp

PICTURE = Path(__file__).parent.parent / "docs" / "screenshot.svg"
CODE = """\
def mean(values):
    \"\"\"The arithmetic mean.\"\"\"
    return sum(values) / len(values) + 1
"""
REPLY = """\
`mean` added one to its result. It is **mended**, and refuses an empty list now:

| input | before | after |
|-------|--------|-------|
| `[2, 4]` | 4.0 | 3.0 |
| `[]` | `ZeroDivisionError` | `ValueError` |
"""
MODEL = scripted(
    call("read_file", path="stats.py"),
    call(
        "edit_file",
        path="stats.py",
        edits=[
            {
                "old": "    return sum(values) / len(values) + 1\n",
                "new": '    if not values:\n        raise ValueError("no values")\n'
                "    return sum(values) / len(values)\n",
            }
        ],
    ),
    text(REPLY),
)


async def picture(folder: Path) -> str:
    (folder / "stats").mkdir()
    (folder / "stats" / "stats.py").write_text(CODE)
    os.environ |= {"SWINK_CONFIG_DIR": str(folder / "config"), "SWINK_DATA_DIR": str(folder / "data")}
    os.environ |= {"HOME": str(folder), "ANTHROPIC_API_KEY": "not-a-key"}
    flags = {"model": "anthropic:claude-sonnet-4-6", "allow": ["edit_file"]}
    options = OpeningOptions(flags=flags, cwd=str(folder / "stats"), session=WantedSession(is_kept=False))
    app = SwinkApp(TalkOptions(opening=Opening(options), stream_fn=MODEL))
    async with app.run_test(size=(96, 28)) as pilot:
        await pilot.pause()
        app.talk.transcript.clear()
        await app.talk.submit("mean([2, 4]) gives 4.0. Why? Mend it.")
        await app.talk.settled()
        for block in app.talk.transcript.blocks:
            if getattr(block, "name", "") == "read_file":
                block.fold()  # pyright: ignore[reportAttributeAccessIssue]
        await pilot.pause(0.5)
        drawn = app.export_screenshot(title="swink")
        await app.talk.close()
    return drawn


def with_own_fonts(svg: str) -> str:
    """The picture without fonts of somebody else's server."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono").replace(
        "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace",
        "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        drawn = with_own_fonts(asyncio.run(picture(Path(folder).resolve())))
    PICTURE.write_text("\n".join([line.rstrip() for line in drawn.splitlines()]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
