"""The values that one run is given: dependencies, model, tools, system prompt, options; and overrides in tests."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import pickle
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentError,
    AgentLoopConfig,
    AgentResult,
    AgentToolResult,
    AuthError,
    Cost,
    MissingDeps,
    ModelSpec,
    PolicyContext,
    PreDispatchContext,
    ProviderMismatch,
    StreamOptions,
    ToolContext,
    ToolResultMessage,
    Usage,
    agent_loop,
    extract_text,
    tool,
)
from swink_agent.adapters.anthropic import AnthropicStreamFn
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import ScriptedStream, call, fail, scripted, text

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

pytestmark = pytest.mark.fast


@dataclass
class User:
    name: str


@tool
def greet(ctx: ToolContext[User]) -> str:
    return f"hello {ctx.deps.name}"


@tool
def other() -> str:
    return "other"


def results(result: AgentResult) -> list[str]:
    return [extract_text(message.content) for message in result.messages if isinstance(message, ToolResultMessage)]


def asked(model: ScriptedStream) -> list[tuple[str, str, list[str], int | None]]:
    """What each request was made of."""
    return [
        (
            request.model.model_id,
            str(request.context.system_prompt),
            [tool.name for tool in request.context.tools],
            request.options.max_tokens,
        )
        for request in model.requests
    ]


# -- every way to run ------------------------------------------------------------------------------------------


async def prompt(agent: Agent, **given: Any) -> object:
    return await agent.prompt("go", **given)


async def prompt_stream(agent: Agent, **given: Any) -> object:
    return await agent.prompt_stream("go", **given).result()


async def prompt_sync(agent: Agent, **given: Any) -> object:
    return await asyncio.to_thread(agent.prompt_sync, "go", **given)


async def continue_loop(agent: Agent, **given: Any) -> object:
    agent.messages = ["go"]
    return await agent.continue_loop(**given)


async def continue_loop_stream(agent: Agent, **given: Any) -> object:
    agent.messages = ["go"]
    return await agent.continue_loop_stream(**given).result()


async def continue_loop_sync(agent: Agent, **given: Any) -> object:
    agent.messages = ["go"]
    return await asyncio.to_thread(agent.continue_loop_sync, **given)


async def structured_output(agent: Agent, **given: Any) -> object:
    return await agent.structured_output("go", {"type": "object"}, **given)


async def structured_output_sync(agent: Agent, **given: Any) -> object:
    return await asyncio.to_thread(agent.structured_output_sync, "go", {"type": "object"}, **given)


WAYS: list[Callable[..., Awaitable[object]]] = [
    prompt,
    prompt_stream,
    prompt_sync,
    continue_loop,
    continue_loop_stream,
    continue_loop_sync,
    structured_output,
    structured_output_sync,
]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_run_takes_values_for_that_run_alone(way: Callable[..., Awaitable[object]]) -> None:
    model = scripted(call("greet"), call("final_answer"), call("final_answer"))
    if not way.__name__.startswith("structured"):
        model = scripted(call("greet"), "done", "done")
    seen: list[object] = []

    class Watch:
        def pre_turn(self, ctx: PolicyContext[User]) -> None:
            seen.append(ctx.deps.name)

        def pre_dispatch(self, ctx: PreDispatchContext[User]) -> None:
            seen.append(ctx.deps.name)

    agent = Agent("any:own", stream_fn=model, tools=[other], system_prompt="own", deps=User("own"), policies=[Watch()])
    config, tools = agent.config, agent.tools
    await way(
        agent,
        deps=User("ann"),
        model="any:other",
        tools=[greet],
        system_prompt=lambda ctx: f"for {ctx.deps.name}",
        stream_options=StreamOptions(max_tokens=7),
    )
    names = ["greet", "final_answer"] if way.__name__.startswith("structured") else ["greet"]
    assert asked(model) == [("other", "for ann", names, 7)] * 2
    first = next(message for message in agent.messages if isinstance(message, ToolResultMessage))
    assert extract_text(first.content) == "hello ann"
    assert set(seen) == {"ann"}
    assert agent.config.deps == User("own")
    assert (agent.config, agent.tools, agent.system_prompt) == (config, tools, "own")
    await way(agent)
    names = ["other", "final_answer"] if way.__name__.startswith("structured") else ["other"]
    assert asked(model)[2:] == [("own", "own", names, None)]


@pytest.mark.parametrize("way", WAYS)
async def test_another_name_is_a_type_error_before_anything_happens(way: Callable[..., Awaitable[object]]) -> None:
    model = scripted("never")
    agent = Agent("any:model", stream_fn=model)
    with pytest.raises(TypeError, match="'dep' cannot be given for one run; deps, model, tools, system_prompt, stream"):
        await way(agent, dep=3)
    assert model.requests == []
    assert not agent.is_running


@pytest.mark.parametrize("name", ["images", "documents"])
def test_options_of_a_prompt_are_refused_without_one(name: str) -> None:
    agent = Agent("any:model", stream_fn=scripted("never"), messages=["Hi"])
    given: dict[str, Any] = {name: [b"%PDF-1.4"]}
    for run in (agent.continue_loop_sync, lambda **given: agent.resume_sync({"c": True}, **given)):
        with pytest.raises(TypeError, match=f"^{name!r} goes with a prompt, and this run has none$"):
            run(**given)
    with pytest.raises(TypeError, match=f"^{name!r} goes with a prompt"):
        agent.structured_run_sync({"c": True}, int, **given)
    with pytest.raises(TypeError, match="cannot be given"), agent.override(**given):
        pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": 3}, "an int does not name a model"),
        ({"model": "nothing"}, "names no model"),
        ({"tools": greet}, "must be a list, not <tool greet>: write tools="),
        ({"tools": [greet, greet]}, "two tools are named 'greet'"),
        ({"system_prompt": 3}, "system_prompt must be a string, or a function"),
        ({"system_prompt": lambda one, two: ""}, "a function of 2 parameters"),
        ({"stream_options": {"max_tokens": 3}}, "stream_options must be StreamOptions, not a dict"),
    ],
)
async def test_a_wrong_value_is_refused_before_anything_happens(given: dict[str, Any], message: str) -> None:
    model = scripted("never")
    agent = Agent("any:model", stream_fn=model)
    with pytest.raises((TypeError, ValueError), match=message):
        await agent.prompt("go", **given)
    with pytest.raises((TypeError, ValueError), match=message):
        agent.prompt_stream("go", **given)
    with pytest.raises((TypeError, ValueError), match=message), agent.override(**given):
        pass
    assert model.requests == []


async def test_a_model_of_another_provider_is_refused_for_one_run_as_for_the_agent() -> None:
    agent = Agent("anthropic:claude", stream_fn=AnthropicStreamFn(api_key="k"))
    with pytest.raises(ProviderMismatch):
        await agent.prompt("go", model="openai:gpt-5")
    assert len(agent.messages) == 0


async def test_none_keeps_the_agents_own_options_except_for_deps() -> None:
    model = scripted("done", call("see"), "done")
    agent = Agent("any:own", stream_fn=model, tools=[other], system_prompt="own", deps=User("own"))
    await agent.prompt("go", model=None, tools=None, system_prompt=None, stream_options=None)
    assert asked(model) == [("own", "own", ["other"], None)]

    @tool
    def see(ctx: ToolContext) -> str:
        return repr(ctx.deps)

    assert results(await agent.prompt("go", deps=None, tools=[see])) == ["None"]


# -- contexts --------------------------------------------------------------------------------------------------


async def test_a_tool_sees_the_turn_the_model_asked_last_the_usage_and_the_messages() -> None:
    seen: list[tuple[object, ...]] = []

    @tool
    def look(ctx: ToolContext) -> str:
        seen.append((ctx.turn_index, str(ctx.model), ctx.usage, [message.role for message in ctx.messages]))
        return ""

    busy = scripted(fail("network", "down"), call("look"), "done", usage=Usage(5, 2))
    spare = scripted(call("look"), usage=Usage(3, 1))
    agent = Agent("any:large", stream_fn=busy, fallbacks=[("any:small", spare)], tools=[look])
    agent = agent.replaced(retry_strategy=Never())
    await agent.prompt("go")
    assert seen == [
        (0, "any:small", Usage(3, 1), ["user", "assistant"]),
        (1, "any:large", Usage(8, 3), ["user", "assistant", "tool_result", "assistant"]),
    ]


class Never:
    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return False

    def delay(self, attempt: int, /) -> float:
        return 0.0


def test_a_test_can_make_a_context_with_all_of_it() -> None:
    ctx = ToolContext(deps=User("ann"), turn_index=2, model=ModelSpec("a", "b"), usage=Usage(1, 2), messages=("x",))
    assert (ctx.turn_index, str(ctx.model), ctx.usage, ctx.messages) == (2, "a:b", Usage(1, 2), ("x",))
    assert greet(ctx) == "hello ann"
    assert (ToolContext().deps, ToolContext().messages, ToolContext().turn_index) == (None, (), 0)


async def test_the_loop_takes_deps_from_its_configuration() -> None:
    model = scripted(call("greet"), "done")
    config = AgentLoopConfig(model=ModelSpec("any", "model"), stream_fn=model, deps=User("ann"))
    context = AgentContext(lambda ctx: f"for {ctx.deps.name}", (), lambda ctx: [greet] if ctx.deps else [])
    result = await agent_loop("go", context, config).result()
    assert results(result) == ["hello ann"]
    assert asked(model) == [("model", "for ann", ["greet"], None)] * 2


# -- missing ---------------------------------------------------------------------------------------------------


@tool
def perhaps(ctx: ToolContext[User | None]) -> str:
    return "nobody" if ctx.deps is None else ctx.deps.name


@tool
def anything(ctx: ToolContext[Any]) -> str:
    return repr(ctx.deps)


@tool
def whatever(ctx: ToolContext[object]) -> str:
    return repr(ctx.deps)


@tool
def later(ctx: ToolContext[OnlyForCheckers], number: int = 1) -> str:
    return f"{ctx.deps} {number}"


@tool
def later_perhaps(ctx: ToolContext[OnlyForCheckers | None]) -> str:
    return f"{ctx.deps}"


class Written:
    name = label = description = "written"
    parameters_schema: dict[str, Any] = {"type": "object"}
    requires_approval = False

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[User], /) -> AgentToolResult:
        return AgentToolResult.text(ctx.deps.name)


class Desk:
    @tool
    def ask(self, ctx: ToolContext[User], text: str) -> str:
        return f"{ctx.deps.name}: {text}"


@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_that_needs_deps_is_missed_before_anything_happens(way: Callable[..., Awaitable[object]]) -> None:
    model = scripted("never")
    agent = Agent("any:model", stream_fn=model, tools=[other, greet])
    with pytest.raises(
        MissingDeps, match="the tool 'greet' needs deps of the type User, and this run has none"
    ) as caught:
        await way(agent)
    assert (caught.value.tool, caught.value.deps_type) == ("greet", "User")
    assert model.requests == []
    assert not agent.is_running


@pytest.mark.parametrize(
    ("needing", "name", "kind"),
    [(later, "later", "OnlyForCheckers"), (Written(), "written", "User"), (Desk().ask, "ask", "User")],
)
async def test_every_kind_of_tool_can_need_deps(needing: Any, name: str, kind: str) -> None:
    agent = Agent("any:model", stream_fn=scripted("never"), tools=[needing])
    with pytest.raises(MissingDeps) as caught:
        agent.prompt_stream("go")
    assert (caught.value.tool, caught.value.deps_type) == (name, kind)
    with pytest.raises(MissingDeps):
        agent_loop("go", AgentContext("", (), [needing]), agent.config)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), MissingDeps)


@pytest.mark.parametrize("lenient", [perhaps, anything, whatever, later_perhaps, other])
async def test_a_tool_that_admits_none_runs_without_deps(lenient: Any) -> None:
    agent = Agent("any:model", stream_fn=scripted(call(lenient.name), "done"), tools=[lenient])
    [said] = results(await agent.prompt("go"))
    assert said in ("nobody", "None", "other")


async def test_a_type_known_only_to_checkers_is_not_an_obstacle() -> None:
    assert later.parameters_schema["properties"] == {"number": {"type": "integer", "default": 1}}
    agent = Agent("any:model", stream_fn=scripted(call("later", number=2), "done"), tools=[later])
    assert results(await agent.prompt("go", deps="three")) == ["three 2"]


def test_any_other_hint_must_still_exist() -> None:
    def bad(ctx: ToolContext[User], number: OnlyForCheckers) -> str:
        return ""

    with pytest.raises(TypeError, match="import them for real, not under TYPE_CHECKING"):
        tool(bad)


# -- overrides -------------------------------------------------------------------------------------------------


async def test_an_override_goes_before_the_run_and_that_before_the_agent_field_by_field() -> None:
    own, put_in = scripted("never"), scripted("one", "two", "three")
    agent = Agent("any:own", stream_fn=own, tools=[other], system_prompt="own")
    with agent.override(stream_fn=put_in, model="any:outer", system_prompt="outer"):
        await agent.prompt("go", system_prompt="run", stream_options=StreamOptions(max_tokens=3))
        with agent.override(model="any:inner", tools=[]):
            await agent.prompt("go")
        await agent.prompt("go", model="any:run")
    assert asked(put_in) == [
        ("outer", "outer", ["other"], 3),
        ("inner", "outer", [], None),
        ("outer", "outer", ["other"], None),
    ]
    assert own.requests == []
    await agent.prompt("go")
    assert asked(own) == [("own", "own", ["other"], None)]


async def test_an_override_needs_no_key_and_has_no_fallbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    spare = scripted("never")
    agent = Agent("anthropic:claude-sonnet-4-6", fallbacks=[("any:spare", spare)], retry_strategy=Never())
    with pytest.raises(AuthError):
        await agent.prompt("go")
    with agent.override(stream_fn=scripted("hi", fail("network", "down"))):
        assert (await agent.prompt("go")).text == "hi"
        assert "down" in str((await agent.prompt("go")).error)
    assert spare.requests == []
    with pytest.raises(AuthError):
        await agent.prompt("go")


async def test_tasks_streams_and_sync_runs_made_inside_keep_the_override() -> None:
    own, put_in = scripted("own", "own"), scripted("a", "b", "c")
    agent = Agent("any:own", stream_fn=own)
    with agent.override(stream_fn=put_in):
        task = asyncio.create_task(agent.prompt("go"))
    assert (await task).text == "a"
    with agent.override(stream_fn=put_in):
        stream = agent.prompt_stream("go")
    assert (await stream.result()).text == "b"
    with agent.override(stream_fn=put_in):
        assert agent.prompt_sync("go").text == "c"
    assert (await agent.prompt("go")).text == "own"


async def test_other_contexts_never_see_the_override() -> None:
    agent = Agent("any:own", stream_fn=scripted("own", "own"))
    entered, left = asyncio.Event(), asyncio.Event()

    async def outside() -> str:
        await entered.wait()
        said = (await agent.prompt("go")).text
        left.set()
        return said

    task = asyncio.create_task(outside())
    with agent.override(stream_fn=scripted("never")):
        entered.set()
        await left.wait()
    assert await task == "own"
    another = Agent("any:other", stream_fn=scripted("another"))
    with agent.override(stream_fn=scripted("never")):
        assert (await another.prompt("go")).text == "another"


async def test_an_override_may_be_entered_any_number_of_times() -> None:
    agent = Agent("any:own", stream_fn=scripted(*["own"] * 9))
    override = agent.override(stream_fn=scripted(*["put in"] * 9))
    for _ in range(2):
        with override:
            assert (await agent.prompt("go")).text == "put in"
            with override:
                assert (await agent.prompt("go")).text == "put in"
            assert (await agent.prompt("go")).text == "put in"
        assert (await agent.prompt("go")).text == "own"

    @override
    def decorated() -> str:
        return agent.prompt_sync("go").text

    assert await asyncio.to_thread(decorated) == "put in"
    assert (await agent.prompt("go")).text == "own"


async def test_an_override_may_be_left_in_another_context_than_it_was_entered_in() -> None:
    agent = Agent("any:own", stream_fn=scripted("own"))
    override = agent.override(stream_fn=scripted("never"))
    contextvars.copy_context().run(override.__enter__)
    assert (await agent.prompt("go")).text == "own"
    override.__exit__(None, None, None)


async def test_an_override_holds_for_compaction_too() -> None:
    asked: list[str] = []

    async def transform(messages: list[Any], overflow: bool) -> None:
        from swink_agent import CompactionContext

        context = CompactionContext.current()
        assert context is not None
        asked.append((await context.ask("shorter?")).text)

    agent = Agent("any:own", stream_fn=scripted("never"), messages=["x"], async_transform_context=transform)
    with agent.override(stream_fn=scripted("put in")):
        await agent.compact()
    assert asked == ["put in"]


def test_an_override_takes_no_other_names() -> None:
    agent = Agent("any:own", stream_fn=scripted())
    wrong: dict[str, Any] = {"streem_fn": scripted()}
    with pytest.raises(TypeError, match="'streem_fn' cannot be given"), agent.override(**wrong):
        pass
    with pytest.raises(TypeError, match="stream_fn must be a function"), agent.override(stream_fn=3):  # type: ignore[arg-type]
        pass


# -- deps are the application's own ----------------------------------------------------------------------------


class Private:
    """Says no to everything that a library might do with it."""

    def _no(self, *_: object) -> Any:
        raise AssertionError("the library touched the deps")

    __eq__ = __repr__ = __str__ = __bool__ = __copy__ = __deepcopy__ = __reduce__ = __len__ = __iter__ = _no  # type: ignore[assignment]
    __hash__ = _no  # type: ignore[assignment]


async def test_deps_are_not_copied_compared_shown_or_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    deps, seen = Private(), list[object]()

    @tool
    async def take(ctx: ToolContext) -> str:
        seen.append(ctx.deps)
        return repr(ctx)

    class Watch:
        def pre_turn(self, ctx: PolicyContext) -> None:
            seen.append(ctx.deps)
            assert repr(ctx)

        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            seen.append(ctx.deps)
            assert repr(ctx)

        post_turn = post_loop = pre_turn

    agent = Agent("any:own", stream_fn=scripted(call("take"), "done"), tools=[take], policies=[Watch()])
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(agent)
        result = await agent.prompt(
            "go",
            deps=deps,
            model="any:other",
            system_prompt="secret prompt",
            stream_options=StreamOptions(max_tokens=77),
        )
        assert len(seen) == 7
        assert all(one is deps for one in seen)
        assert repr(result)
        assert repr(agent)
    recorded = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))  # noqa: ASYNC240
    assert "secret prompt" not in recorded
    assert "max_tokens" not in recorded
    with JsonlSessionStore(tmp_path).open(session.id) as session:
        again = Agent("any:own", stream_fn=scripted())
        session.attach(again)
        assert str(again.model) == "any:own"


@pytest.mark.parametrize("way", [prompt, prompt_stream, prompt_sync])
async def test_deps_are_not_kept_after_the_run(way: Callable[..., Awaitable[object]]) -> None:
    async def run(agent: Agent) -> tuple[object, weakref.ref[User]]:
        deps = User("ann")
        return await way(agent, deps=deps), weakref.ref(deps)

    agent = Agent("any:own", stream_fn=scripted(call("greet"), "done"), tools=[greet], system_prompt=lambda ctx: "x")
    kept, gone = await run(agent)
    for _ in range(500):  # the thread of a sync run may still be ending
        gc.collect()
        if gone() is None:
            break
        await asyncio.sleep(0.01)
    assert kept
    assert gone() is None


async def test_a_stream_that_is_kept_does_not_keep_the_deps() -> None:
    agent = Agent("any:own", stream_fn=scripted("done", "done"))
    streams: list[Any] = []

    async def run() -> list[weakref.ref[User]]:
        deps, config_deps = User("ann"), User("bob")
        streams.append(agent.prompt_stream("go", deps=deps))
        config = AgentLoopConfig(model=agent.model, stream_fn=scripted("done"), deps=config_deps)
        streams.append(agent_loop("go", AgentContext(), config))
        for stream in streams:
            await stream.result()
        return [weakref.ref(deps), weakref.ref(config_deps)]

    gone = await run()
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_contexts_do_not_copy_compare_or_pickle_deps() -> None:
    deps = Private()
    context = PolicyContext(turn_index=0, messages=(), usage=Usage(), cost=Cost(), state={}, deps=deps)
    without = PolicyContext(turn_index=0, messages=(), usage=Usage(), cost=Cost(), state={})
    assert context == context
    assert context != without
    assert copy.copy(context).deps is deps
    assert copy.deepcopy(context) == without
    assert pickle.loads(pickle.dumps(context)) == without
    config = AgentLoopConfig(model=ModelSpec("a", "b"), stream_fn=scripted(), deps=deps)
    assert "deps=…" in repr(config)
    assert config == config
    for one in (ToolContext(deps=deps), PreDispatchContext(context, "1", "x", {})):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(one)
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.deepcopy(one)


def test_a_copy_of_an_agent_has_its_deps_and_functions() -> None:
    agent = Agent[User]("any:own", stream_fn=scripted(text("x")), deps=User("ann"), tools=lambda: [greet])
    made = agent.replaced()
    assert made.config.deps is agent.config.deps
    made = made.replaced(stream_fn=scripted(call("greet"), "done"))
    assert results(made.prompt_sync("go")) == ["hello ann"]
