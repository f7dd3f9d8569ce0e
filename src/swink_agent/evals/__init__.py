"""Evaluation: cases, an agent that runs on them, scores for what it did, and what a team does with them.

`load_set` reads a set of cases, an `EvalRunner` runs a real agent on each, evaluators score what it did, an `EvalStore`
keeps the results, and an `AuditTrail` says whether they are as they were. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
