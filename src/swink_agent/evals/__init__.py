"""Evaluation: runs an agent on cases and scores what it did.

    cases/     sets of cases, and the files that they are loaded from
    scoring/   evaluators, and the judge that asks a model
    runs/      running a set, storing, verifying, comparing and gating its results
    reports/   a run as console text, Markdown, JSON, JUnit XML or HTML
    types.py   the values: invocations, scores, attempts, results, runs

Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
