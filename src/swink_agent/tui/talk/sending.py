"""What a person wrote, as a message: masked before anybody keeps or sends it, with its pictures.

Owns making the message. What becomes of it is for the conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from swink_agent.app.input_files import picture, refuse_blind
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import Image, ModelSpec, Text, UserMessage

__all__ = ["KEY_LINE", "MASKED", "user_message"]

KEY_LINE = "nothing was sent: a line that begins with #key is for no model; as a command it stands alone"

MASKED = "what looks like a secret in that was masked before it was kept or sent; #key stores a key"


async def user_message(
    text: str, images: Sequence[str], *, redactor: Redactor, model: ModelSpec
) -> tuple[UserMessage, bool]:
    """The message, and whether something in it was masked. Raises `UsageProblem` for a picture that cannot be sent."""

    def read() -> list[Image]:
        refuse_blind(model, "leave the picture out")
        return [picture(name, "") for name in images]

    pictures = await asyncio.to_thread(read) if images else []
    masked = redactor.redact(text)
    return UserMessage([Text(masked or "Look at this."), *pictures]), masked != text
