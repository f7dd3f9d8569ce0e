"""The repository's own sets can be read, and those with a script pass on the standard agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.app.evals.evaluation import StandardAgents, StandInModel
from swink_agent.app.keys.credentials import Credentials
from swink_agent.evals import EvalRun, EvalRunner, EvaluatorRegistry, Gate, Script, load_script, load_set, report

FOLDER = Path(__file__).parents[2] / "evals"
SETS = sorted([path for path in FOLDER.glob("*.yaml") if not path.name.endswith(".replies.yaml")])
SCRIPTED = [path for path in SETS if path.with_suffix(".replies.yaml").exists()]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"SWINK_{name}_DIR", str(tmp_path / name))


async def run(path: Path, script: Script) -> EvalRun:
    stand_in = StandInModel(script)
    agents = StandardAgents({}, Credentials(), stand_in=stand_in)
    try:
        return await EvalRunner(agents, EvaluatorRegistry.standard(stand_in.judge)).run(load_set(path))
    finally:
        agents.close()


def test_there_are_sets_of_both_kinds() -> None:
    assert {path.stem for path in SETS} > {path.stem for path in SCRIPTED} > set()


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_set_can_be_read(path: Path) -> None:
    assert load_set(path).cases


@pytest.mark.parametrize("path", SCRIPTED, ids=lambda path: path.stem)
async def test_a_scripted_set_passes(path: Path) -> None:
    done = await run(path, load_script(path.with_suffix(".replies.yaml")))
    assert Gate(min_pass_rate=1.0).check(done).passed, report(done)


@pytest.mark.sweep
async def test_a_model_that_does_nothing_passes_no_case() -> None:
    path = FOLDER / "builtin-tools.yaml"
    idle = Script({"*": ("I would rather not.", "No.", "No.", "No.", "No.")}, judge='{"score": 0}')
    done = await run(path, idle)
    assert done.summary.passed == 0, report(done)
