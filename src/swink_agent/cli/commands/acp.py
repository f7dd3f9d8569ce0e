"""`swink acp`: serves the agent to editors over stdin and stdout."""

from __future__ import annotations

import asyncio
import sys

import click

from swink_agent.app.agent.providers import all_providers
from swink_agent.app.errors import ExitCode
from swink_agent.app.keys.credentials import Credentials
from swink_agent.core.machine.extras import require
from swink_agent.core.secrets.redaction import Redactor

from ..prompt.reporter import Reporter
from ..root import options_of_prompt
from ..screen.screen import Screen
from .keys import read_key


@options_of_prompt("model", "approve", "sandbox")
@click.option("--keys", is_flag=True, help="Ask for a provider's key in this terminal and store it; do not serve.")
@click.command(
    epilog="""\b
Examples:
  swink acp                       the agent command for an editor's settings
  swink acp -m anthropic          with this model
  swink acp --keys                store a key, as an editor offers it""",
)
def acp(keys: bool, **flags: str | None) -> int:
    """Serve the agent to an editor over stdin and stdout.

    The editor starts it, and they use the Agent Client Protocol. `swink sessions` lists its sessions too.
    """
    if keys:
        return _store_key()
    protocol = require("acp", extra="acp")
    from swink_agent.acp.editor_agent import EditorAgent
    from swink_agent.acp.transport import LONGEST_LINE, LineTransport

    reporter = Reporter(Screen(sys.stderr), Redactor())
    reporter.hear_log("")  # of all packages: otherwise the protocol's package writes tracebacks
    agent = EditorAgent({name: value for name, value in flags.items() if value is not None}, reporter.warn)

    async def serve() -> None:
        reader, writer = await protocol.stdio_streams(limit=LONGEST_LINE)
        try:
            # Methods that are stable in the protocol are still unstable in the package.
            await protocol.run_agent(agent, LineTransport(reader, writer), use_unstable_protocol=True)
        finally:
            await agent.close()
            writer.close()

    asyncio.run(serve())
    return ExitCode.DONE


def _store_key() -> int:
    """Asks for a provider and its key, and stores the key."""
    names = [each.name for each in all_providers() if each.default_model and each.key_variables and not each.keys_of]
    provider = click.prompt("Provider", type=click.Choice(names), default=names[0], err=True)
    where = Credentials().set(provider, read_key(provider))
    click.echo(f"The key of {provider} is in {where}.", err=True)
    return ExitCode.DONE
