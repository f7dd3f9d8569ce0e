"""`swink acp`: serves the agent to editors over stdin and stdout."""

from __future__ import annotations

import asyncio
import sys

import click

from swink_agent.app.errors import ExitCode
from swink_agent.core.machine.extras import require
from swink_agent.core.secrets.redaction import Redactor

from ..prompt.reporter import Reporter
from ..root import options_of_prompt
from ..screen.screen import Screen


@options_of_prompt("model", "approve", "sandbox")
@click.command(
    epilog="""\b
Examples:
  swink acp                       the agent command for an editor's settings
  swink acp -m anthropic          with this model""",
)
def acp(**flags: str | None) -> int:
    """Serve the agent to an editor over stdin and stdout.

    The editor starts it, and they use the Agent Client Protocol. `swink sessions` lists its sessions too.
    """
    protocol = require("acp", extra="acp")
    from swink_agent.acp.editor_agent import EditorAgent
    from swink_agent.acp.transport import LONGEST_LINE, LineTransport

    reporter = Reporter(Screen(sys.stderr), Redactor())
    reporter.hear_log("")  # of all packages: otherwise the protocol's package writes tracebacks
    agent = EditorAgent({name: value for name, value in flags.items() if value is not None}, reporter.warn)

    async def serve() -> None:
        reader, writer = await protocol.stdio_streams(limit=LONGEST_LINE)
        try:
            await protocol.run_agent(agent, LineTransport(reader, writer))
        finally:
            await agent.close()
            writer.close()

    asyncio.run(serve())
    return ExitCode.DONE
