"""Adapters that run the same exercises with other agent frameworks, if they are installed."""

import importlib
import importlib.util
import logging

_log = logging.getLogger(__name__)

_PEERS = (
    # module here, class in it, top-level packages it needs
    ("pydantic_ai_peer", "PydanticAi", ("pydantic_ai",)),
    ("openai_agents_peer", "OpenAiAgents", ("agents", "openai")),
    ("strands_peer", "Strands", ("strands",)),
    ("langgraph_peer", "LangGraph", ("langgraph", "langchain_core")),
)


def installed_peers() -> list[type]:
    """The adapters whose framework is installed and works; a broken one is logged and left out."""
    found: list[type] = []
    for module, name, packages in _PEERS:
        try:
            if not all(importlib.util.find_spec(package) for package in packages):
                continue
            peer: type = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            peer().make_agent()
        except Exception:  # whatever a foreign package raises
            _log.warning("peer %s is installed but unusable; leaving it out", name, exc_info=True)
        else:
            found.append(peer)
    return found
