"""Agents for evaluations: the standard one in a case's folder, or a project's own, with a live model or a stand-in.

Provides the factories that the runner of `swink_agent.evals` needs. The user is never asked: the case's folder and the
sandbox limit the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec
from swink_agent.core.values.checks import a_kind

from ..agent.models import choose_model, local_fetch, model_of_settings, named_model, stream_fn_of, with_stored_keys
from ..agent.standard import AgentOptions, StandardAgent, standard_agent
from ..errors import UsageProblem
from ..keys.credentials import Credentials
from ..own_code import object_named
from ..settings.paths import data_folder
from ..settings.settings import load_settings
from .recorded_cases import SESSION_FIELD, recorded_replies

if TYPE_CHECKING:
    from swink_agent.evals import EvalCase, EvalRun, EvalStore, EvaluatorRegistry, JudgeEvaluator, RunInfo, Script
    from swink_agent.evals.runs.executor import MakeAgentFn, Subject

_MOST_OTHERS, _MOST_WHOLE = 60, 12
STAND_IN_MODEL = ModelSpec("scripted", "replies")
_UNATTENDED = {"approve": "all", "undo": False, "sandbox": "auto"}
"""Calls need no approval and changes no checkpoint: they are confined to a folder that is deleted. A settings file
cannot turn the sandbox off, since it was written for runs in which the user is asked."""


def results_folder() -> Path:
    """Where results are kept by default."""
    return data_folder() / "evals"


def other_runs(store: EvalStore, run: EvalRun) -> list[EvalRun | RunInfo]:
    """The other complete runs of the set in the same store: the newest in full, the others only as figures."""
    from swink_agent.evals import EvalStore, EvalStoreError

    if run.path:
        store = EvalStore(Path(run.path).absolute().parent.parent)
    infos = [info for info in store.list(run.set_id) if info.is_complete and info.id != run.id][:_MOST_OTHERS]
    found: list[EvalRun | RunInfo] = [*infos[_MOST_WHOLE:]]
    for info in infos[:_MOST_WHOLE]:
        try:
            found.append(store.load(info))
        except EvalStoreError:  # an unreadable run must not hide the others
            continue
    return found


class StandInModel:
    """Replaces a model's replies by those of a script or of a recorded session."""

    def __init__(self, script: Script | None = None, recordings: Path | None = None) -> None:
        self._script = script
        self._recordings = recordings

    def __call__(self, case: EvalCase) -> StreamFn:
        """The stand-in for one attempt at a case. Raises `UsageProblem` if it has no replies for it."""
        from swink_agent.evals import ScriptedModel

        if self._script is not None:
            replies = self._script.replies_for(case.id)
            if replies is not None:
                return ScriptedModel(replies)
        if self._recordings is not None:
            return self._recorded(case, self._recordings)
        raise UsageProblem(f"the script has no replies for the case {case.id!r}, and none for '*'")

    @staticmethod
    def _recorded(case: EvalCase, recordings: Path) -> StreamFn:
        from swink_agent.evals import ScriptedModel
        from swink_agent.memory import JsonlSessionStore, SessionError

        session_id = case.metadata.get(SESSION_FIELD)
        if not isinstance(session_id, str):
            raise UsageProblem(f"the case {case.id!r} has no session: its metadata has no field {SESSION_FIELD!r}")
        try:
            loaded = JsonlSessionStore(recordings).load(session_id)
        except SessionError as error:
            raise UsageProblem(f"the recording of the case {case.id!r} cannot be read: {error}") from error
        return ScriptedModel(recorded_replies(loaded), f"the recording {session_id}")

    @property
    def judge(self) -> JudgeEvaluator | None:
        return None if self._script is None or self._script.judge is None else scripted_judge(self._script)


def scripted_judge(script: Script) -> JudgeEvaluator:
    """A judge that always gives the script's answer. Raises `UsageProblem` if that is not a score."""
    from swink_agent.evals import JudgeEvaluator
    from swink_agent.evals.scoring.judge import gives_score

    stream_fn = scripted_judge_model(script)
    if not gives_score(script.judge or ""):
        told = "the script's judge gives no score from 0 to 1: write judge: {score: 1, reasoning: Right.}"
        raise UsageProblem(told)
    return JudgeEvaluator(STAND_IN_MODEL, stream_fn=stream_fn)


def scripted_judge_model(script: Script) -> StreamFn:
    """The stream function of a scripted judge, with one answer. Raises `UsageProblem` if there is none."""
    from swink_agent.evals import ScriptedModel, ScriptedReply

    if script.judge is None:
        raise UsageProblem("the script has no judge: add judge: {score: 1, reasoning: Right.}")
    return ScriptedModel([ScriptedReply(script.judge).message(1)], is_endless=True)


def judge_of(model: str, credentials: Credentials) -> JudgeEvaluator:
    """The evaluator that asks this model. Raises `NoModel` or `UsageProblem` if the model cannot be used."""
    from swink_agent.evals import JudgeEvaluator

    spec = named_model(model, load_settings().aliases())
    return JudgeEvaluator(spec, stream_fn=judge_stream_fn(spec, credentials))


def judge_stream_fn(spec: ModelSpec, credentials: Credentials) -> StreamFn:
    return with_stored_keys(stream_fn_of(spec, load_settings(), credentials), credentials)


# -- the standard agent --------------------------------------------------------------------------------------


class StandardAgents:
    """A factory of standard agents, each in the folder of its case. Close it to unload a local model."""

    def __init__(
        self,
        flags: Mapping[str, Any],
        credentials: Credentials,
        *,
        stand_in: StandInModel | None = None,
        stream_fn: StreamFn | None = None,
        on_local_state: Callable[[Any], None] | None = None,
    ) -> None:
        """`stream_fn` replaces the model's own, and the caller closes it.

        Raises `NoModel`, `UsageProblem` or `SettingsError` for problems that would affect every case.
        """
        self._flags = {**_UNATTENDED, **{name: value for name, value in flags.items() if value is not None}}
        self._credentials = credentials
        self._stand_in = stand_in
        self._settings = {"": load_settings(flags=self._flags)}
        settings = self._settings[""]
        self._stream_fn = stream_fn
        self._owned: StreamFn | None = None
        self.prepare: Callable[[CancellationToken], None] | None = None
        """Slow preparation before the first case, such as fetching a model. Call it in a thread."""
        if stand_in is not None:
            self.model = STAND_IN_MODEL if flags.get("model") is None else model_of_settings(settings)
        else:
            self.model = choose_model(settings, credentials)[0]
            if stream_fn is None:  # one for all cases: a local model is loaded once
                self._owned = stream_fn_of(self.model, settings, credentials, on_local_state=on_local_state)
                self._stream_fn = self._owned
            self.prepare = local_fetch(self.model, settings, on_local_state)
        self.warnings: dict[str, None] = {}
        """Warnings for the user, each once."""
        self._open: set[_Attempt] = set()

    def __call__(self, case: EvalCase, folder: Path) -> Subject:
        from swink_agent.evals import BudgetGuard

        prompt = case.system_prompt
        if prompt not in self._settings:
            self._settings[prompt] = load_settings(flags={**self._flags, "system": prompt})
        options = AgentOptions(
            settings=self._settings[prompt],
            credentials=self._credentials,
            folder=folder,
            stream_fn=self._stream_fn if self._stand_in is None else self._stand_in(case),
            model=self.model,
            policies=() if case.budget is None else (BudgetGuard.of(case.budget),),
        )
        made = standard_agent(options)
        self.warnings |= dict.fromkeys(made.warnings)
        attempt = _Attempt(made, case, self._open.discard)
        self._open.add(attempt)
        return attempt

    def close(self) -> None:
        """Closes the open agents and the model. Safe to call again, and from a signal handler."""
        for attempt in list(self._open):
            attempt.close()
        close: Any = getattr(self._owned, "close", None)
        if close is not None:
            close()


class _Attempt:
    """One agent working on one case. If the case expects a value of a schema, the last message asks for it."""

    def __init__(self, made: StandardAgent, case: EvalCase, on_close: Callable[[_Attempt], None]) -> None:
        self._made = made
        self._case = case
        self._on_close = on_close
        self._left = len(case.user_messages)

    @property
    def agent(self) -> Agent:
        return self._made.agent

    async def ask(self, message: str) -> Any:
        self._left -= 1
        expected = self._case.expected_response
        if self._left or expected is None or expected.schema is None:
            return await self.agent.prompt(message)
        return await self.agent.structured_output(message, expected.schema)

    def close(self) -> None:
        self._made.close()
        self._on_close(self)


# -- a project's own agents ----------------------------------------------------------------------------------


class OwnAgents:
    """A project's own factory. If a model or a stand-in is given, it replaces the model of the factory's agents."""

    def __init__(
        self, make_agent: MakeAgentFn, *, model: str | None = None, stand_in: StandInModel | None = None
    ) -> None:
        self._make_agent = make_agent
        self._model = None if model is None else named_model(model, load_settings().aliases())
        self._stand_in = stand_in

    async def __call__(self, case: EvalCase, folder: Path) -> Agent | Subject:
        made: Any = self._make_agent(case, folder)
        if isawaitable(made):
            made = await made
        found: object = getattr(made, "agent", made)
        if isinstance(found, Agent):
            agent = cast("Agent", found)
            if self._model is not None:
                agent.model = self._model
            if self._stand_in is not None:
                model = STAND_IN_MODEL if self._model is None else self._model  # shown in reports
                played = agent.replaced(stream_fn=self._stand_in(case), model=model)
                agent.system_prompt = _never_asked
                return played if made is agent else _with_agent(made, played)
        return made


def _never_asked() -> str:
    """The system prompt of a replaced agent: a factory that kept that agent must not ask its real model."""
    raise RuntimeError("this agent has been replaced by one with a stand-in for its model: use the subject's `agent`")


def _with_agent(subject: Any, agent: Agent) -> Subject:
    """The subject with another agent. Raises `UsageProblem` if its own `ask` could not use that one."""
    try:
        subject.agent = agent
    except AttributeError:
        if hasattr(subject, "ask"):
            raise UsageProblem(
                f"no stand-in can replace the model of {type(subject).__name__}: its `ask` needs an `agent` that can "
                "be assigned"
            ) from None
        close: Callable[[], Any] = getattr(subject, "close", lambda: None)
        return cast("Subject", SimpleNamespace(agent=agent, close=close))
    return subject


def factory_named(name: str, folder: Path) -> MakeAgentFn:
    """The factory that `module:function` or `path/to/file.py:function` names. Raises `UsageProblem`."""
    return cast("MakeAgentFn", _callable(name, folder, "factory"))


def agent_named(text: str) -> tuple[str, str]:
    """The variant's name and the factory in `name=module:function`; without a name, the factory is the name."""
    name, equals, factory = text.partition("=")
    if equals and name.strip() and not set(name) & set("/:\\"):
        return name.strip(), factory
    return text, text


def evaluators_named(names: Sequence[str], folder: Path, judge: JudgeEvaluator | None = None) -> EvaluatorRegistry:
    """The built-in evaluators and the named ones, written like factories. Raises `UsageProblem`."""
    from swink_agent.evals import EvaluatorRegistry

    registry = EvaluatorRegistry.standard(judge)
    for name in names:
        try:
            registry.register(_callable(name, folder, "evaluator"))
        except (TypeError, ValueError) as error:
            raise UsageProblem(f"{name!r} is not an evaluator that can be added: {error}") from error
    return registry


def _callable(name: str, folder: Path, noun: str) -> Any:
    found = object_named(name, folder, noun, "function")
    if not callable(found) and not callable(getattr(found, "evaluate", None)):
        raise UsageProblem(f"{name!r} is {a_kind(found)}, which cannot be called")
    return found
