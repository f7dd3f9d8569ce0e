"""The models that answered in place of those that were asked: which of them a person is told of, and in which words."""

from __future__ import annotations

from swink_agent.core import events
from swink_agent.core.events import AgentEvent, DelegateEvent
from swink_agent.core.types import AssistantMessage, ModelSpec


class OtherModels:
    """Tells of a reply by another model, once in each run for each pair of models. Replies of delegates count."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told = set[tuple[str, str]]()

    def of(self, event: AgentEvent) -> str | None:
        """Returns what to tell a person after an event, if anything."""
        match event:
            case events.AgentStart():
                self._told.clear()
            case events.MessageEnd(message=message):
                return self._of(message)
            case DelegateEvent(event=inner):
                while isinstance(inner, DelegateEvent):
                    inner = inner.event
                if isinstance(inner, events.MessageEnd):
                    return self._of(inner.message)
            case _:
                pass
        return None

    def _of(self, message: AssistantMessage) -> str | None:
        served = message.served_model
        if not served or served == message.model_id:
            return None
        from swink_agent.adapters.catalog import is_same_model  # on use: it reads the catalog

        asked = ModelSpec(message.provider, message.model_id)
        pair = (str(asked), served)
        if pair in self._told or is_same_model(asked, served):
            return None
        self._told.add(pair)
        return f"{asked} was asked, and {served} answered"
