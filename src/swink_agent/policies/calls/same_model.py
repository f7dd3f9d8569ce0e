"""`SameModel`: runs no tool of a reply that another model gave than the one asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from swink_agent.core.policy import PreDispatchContext, Stop
from swink_agent.core.types import AssistantMessage, ModelSpec
from swink_agent.core.values.several import several_texts


class SameModel:
    """Stops a run before any tool runs that a reply by another model called.

    A provider or a router may answer with another model than was asked for, and most say so (`served_model`). Models in
    `allow` may stand in. Names are compared by `is_same_model`. A reply whose provider does not name its
    model is taken as the one asked for, and a reply without calls ends the run as ever.
    """

    name = "same_model"
    __slots__ = ("allow",)

    def __init__(self, allow: str | Iterable[str] = ()) -> None:
        self.allow = several_texts(allow, "SameModel: allow")

    def __repr__(self) -> str:
        return f"SameModel(allow={self.allow!r})"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
        reply = next((message for message in reversed(ctx.messages) if isinstance(message, AssistantMessage)), None)
        if reply is None or not reply.served_model:
            return None
        asked, served = ModelSpec(reply.provider, reply.model_id), reply.served_model
        is_same_model = import_module("swink_agent").is_same_model  # by name: the catalog is in another package
        if any(is_same_model(model, served) for model in (asked, *self.allow)):
            return None
        return Stop(f"{asked} was asked, and {served} answered; to accept it: SameModel(allow=[{served!r}])")
