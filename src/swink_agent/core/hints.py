"""Types that hints name but that are loaded only when somebody reads the hints.

Owns no type. `hints.Path | None` costs nothing until `typing.get_type_hints` evaluates it, and a name under
`TYPE_CHECKING` alone could not be evaluated at all.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path as Path

    from .journal import Journal as Journal
    from .journal import Past as Past
    from .model_info import ModelInfo as ModelInfo
    from .redaction import Redactor as Redactor
    from .schema import FunctionSchema as FunctionSchema
    from .structured import StructuredOutput as StructuredOutput
    from .tool import AgentTool as AgentTool

_PLACES = {
    "Path": "pathlib",
    "Journal": "swink_agent.core.journal",
    "Past": "swink_agent.core.journal",
    "ModelInfo": "swink_agent.core.model_info",
    "Redactor": "swink_agent.core.redaction",
    "FunctionSchema": "swink_agent.core.schema",
    "StructuredOutput": "swink_agent.core.structured",
    "AgentTool": "swink_agent.core.tool",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
