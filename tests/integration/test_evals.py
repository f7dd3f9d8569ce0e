"""The repository's set for the embedded model passes on that model, and passes the gate."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent.evals import AuditTrail, EvalRunner, EvalStore, EvaluatorRegistry, Gate, load_set, report
from swink_agent.local import LocalStreamFn, ModelStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[2] / "evals"


def embedded() -> Any:
    spec = importlib.util.spec_from_file_location("embedded_agent", FOLDER / "embedded_agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_embedded_model_passes_the_set_that_is_made_for_it(tmp_path: Path) -> None:
    models = ModelStore(os.environ.get("SWINK_TEST_CACHE") or Path.home() / ".cache" / "swink-agent-tests")
    agents = embedded()
    models.fetch(agents.MODEL.model_id)
    evaluators = EvaluatorRegistry.standard()
    evaluators.register(agents.made_a_call, on_request=True)
    stream_fn = LocalStreamFn(agents.MODEL.model_id, store=models, context_length=1024)
    try:
        runner = EvalRunner(
            agents.EmbeddedAgents(stream_fn), evaluators, parallel=1, repeat=2, store=EvalStore(tmp_path)
        )
        run = await runner.run(load_set(FOLDER / "embedded.yaml"))
    finally:
        stream_fn.close()
    verdict = Gate(min_pass_rate=1.0, max_cost=0.0).check(run)
    assert verdict.passed, report(run, "console")
    assert AuditTrail.verify(run) == []
    assert run.summary.tokens > 0
