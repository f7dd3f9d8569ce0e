"""The standard agent: the built-in tools in a folder, confined, with approval, policies, keys and limits.

Connects the parts, so that all front ends run the same agent. Each part's behaviour is in its own package.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from swink_agent.core.agent.agent import Agent
from swink_agent.core.approval import ApprovalMode
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn, StreamOptions
from swink_agent.core.tool import AgentTool
from swink_agent.core.types import ModelSpec
from swink_agent.core.values.value import Value

from ..errors import UsageProblem
from ..keys.credentials import Credentials
from ..runs.one_run import PrepareFn
from ..runs.undo import open_checkpoints, why_unkept
from ..settings.definitions import TOOLS_OF_BASH
from ..settings.mcp_servers import ServerSettings
from ..settings.settings import Settings, add_hosts, settings_file
from ..trust.extras import extra_policies, extra_tools
from ..trust.trust import Project
from .approval_modes import ChosenMode, choose_mode
from .confinement import open_confined, private_folders, sandbox_profile, writable_folders
from .context import compaction, provider_options
from .models import choose_model, is_small, local_fetch, stream_fn_of
from .offered_tools import OfferedTools
from .skills import usable_skills
from .system_prompt import project_notes, standard_prompt

if TYPE_CHECKING:
    from swink_agent.approvals import Approvals, CallRules, SessionTrust
    from swink_agent.approvals.approvals import AskFn
    from swink_agent.approvals.modes import ApprovalsMode
    from swink_agent.core.policy import Policy
    from swink_agent.sandbox import Sandbox
    from swink_agent.skills import Skill
    from swink_agent.tools import BashTool
    from swink_agent.tools.commands.tasks import BackgroundTasks

    from .hooks import HookPolicy, Hooks
    from .servers import McpServers

_LOCAL_NOTES = 1000
"""Characters of a project's notes for a local model, which reads slowly."""
_CHANGING, _LOOKING = ("edit_file", "write_file", "bash"), ("read_file", "search", "list_dir")
_MOST_OUTPUT, _LEAST_OUTPUT = 16_384, 1_024
_TASK_DESCRIPTION = """Gives a task to another agent that reads files, lists folders and searches here, and changes \
nothing. It knows only the prompt, and answers with a report. Use it for questions that need many files: they do not \
fill this conversation. Several calls run at the same time."""
_TASK_INSTRUCTIONS = """Another agent gave you this one task. You can only read. Nobody can answer questions: do the \
whole task, then report what you found, with paths and line numbers."""


class AgentOptions(Value, frozen=True, kw_only=True):
    """The parts of a standard agent. `ask` asks the user; without it, no questions are asked."""

    settings: Settings
    credentials: Credentials
    folder: Path
    added: tuple[Path, ...] = ()
    """Additional folders that tools may read and write."""
    project: Project | None = None
    ask: AskFn | None = None
    is_attended: bool = False
    """Whether a user follows every run and can stop it, as in the terminal UI."""
    on_local_state: Callable[[Any], None] | None = None
    stream_fn: StreamFn | None = None
    """Replaces the model's own stream function, for tests."""
    model: ModelSpec | None = None
    redactor: Redactor | None = None
    trust: SessionTrust | None = None
    """Answers that the user gave before, if another agent continues the conversation."""
    policies: tuple[Policy, ...] = ()
    """Policies that run after the standard ones. The agent of `task` has them too."""
    uses_servers: bool = False
    """Whether the MCP servers of the settings are started."""
    other_servers: tuple[ServerSettings, ...] = ()
    """MCP servers from an editor. A server of the same name in the settings has priority."""
    servers: McpServers | None = None
    """MCP servers that already run, if another agent continues the conversation."""
    uses_hooks: bool = True
    """Whether the hooks of the settings decide about calls. `StandardAgent.hooks` observes runs."""


class StandardAgent(Struct, kw_only=True, eq=False):
    """The agent and its resources. Closing it ends every process that its tools started."""

    agent: Agent
    model_source: str
    """Where the choice of the model comes from, in words."""
    has_chosen_model: bool
    """Whether the user named the model. If not, it is the first that can be used."""
    redactor: Redactor
    approvals: Approvals
    approval_mode: ChosenMode
    """The mode of approvals that the agent began with, and why."""
    prepare: PrepareFn | None
    """Slow preparation before the first prompt, such as fetching a model. Call it in a thread."""
    sandbox: Sandbox | None
    shell: BashTool | None
    """The built-in bash, if the agent has it."""
    warnings: tuple[str, ...]
    """Warnings to show before the run."""
    servers: McpServers | None
    """The MCP servers, if the settings have any."""
    hooks: Hooks | None
    """The hooks, if the settings have any."""

    @property
    def tasks(self) -> BackgroundTasks | None:
        return None if self.shell is None else self.shell.tasks

    def take_over_hooks(self, last: StandardAgent) -> None:
        """Lets the hooks that still run for the conversation's last agent, which will be closed, run to their end."""
        if self.hooks is not None and last.hooks is not None:
            self.hooks.take_over(last.hooks)

    def close(self) -> None:
        """Ends hooks, commands, MCP servers and the sandbox. Safe to call again, and from a signal handler."""
        if self.hooks is not None:
            self.hooks.close()
        if self.shell is not None:
            self.shell.close()
        if self.servers is not None:
            self.servers.close_soon()
        if self.sandbox is not None:
            self.sandbox.close()

    async def finish(self, seconds: float | None = None) -> None:
        """Waits for hooks, at most `seconds`, and ends the MCP servers. Call it in their event loop."""
        if self.hooks is not None:
            await self.hooks.finish(seconds)
        if self.servers is not None:
            await self.servers.close()

    def __enter__(self) -> StandardAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def standard_agent(options: AgentOptions) -> StandardAgent:
    """The agent for a folder. Raises `NoModel` or `UsageProblem` before anything has happened."""
    from swink_agent.approvals import CallRules

    settings, credentials = options.settings, options.credentials
    model, source = (options.model, "given") if options.model is not None else choose_model(settings, credentials)
    stream_fn = options.stream_fn or stream_fn_of(model, settings, credentials, on_local_state=options.on_local_state)
    max_cost = settings.value("max_cost")
    if max_cost is not None and options.stream_fn is None:
        _refuse_unpriced(model, settings["max_cost"].source)
    redactor = redactor_for(settings, credentials) if options.redactor is None else options.redactor
    warnings = list(settings.notes)
    root = _folder(options.folder)
    added = tuple([_folder(folder) for folder in options.added])
    # The settings were checked for known tools. A rule for a tool that is off has no effect.
    rules = CallRules(root, allow=settings.value("allow"), deny=settings.value("deny"))
    extra = extra_tools(
        settings.value("extra_tools"), root, denied=rules.denied_tools, private=settings.value("web_private")
    )
    watching = extra_policies(settings.value("extra_policies"), root)
    tools, sandbox, unkept = _tools(root, added, settings, rules, warnings)
    backend = None if sandbox is None or sandbox.backend == "off" else sandbox.backend
    chosen = choose_mode(settings, root, [tool.name for tool in tools], backend=backend, unkept=unkept)
    tools += extra
    hooks = _hooks(options, root, added, redactor, warnings)
    approvals = _approvals(options, hooks, rules, tools, redactor, chosen.mode)
    skills = usable_skills(options.project) if settings.value("skills") and not is_small(model) else []
    if skills and "skill" not in rules.denied_tools:
        from swink_agent.skills import SkillTool  # on use: few folders have skills

        tools.append(SkillTool(skills))
    system = redactor.redact(_system_prompt(root, model, options, skills))
    reply = _most_output(model, max_cost, settings.value("max_tokens"))
    shared: dict[str, Any] = {
        "stream_fn": stream_fn,
        "stream_options": StreamOptions(
            temperature=settings.value("temperature"),
            max_tokens=reply,
            extra=provider_options(model, settings),
            web_search=_searches(stream_fn, model, settings, tools, warnings),
        ),
        "get_api_key": _key_finder(credentials, redactor),
        "execution_root": root,
        "redactor": redactor,
        "max_turns": None,  # the policies have the limit of the settings, if there is one
    }
    limits = _policies(root, added, settings, rules, is_attended=options.is_attended, max_cost=max_cost)
    looking = [tool for tool in tools if tool.name in _LOOKING]
    if looking and "task" in settings.value("tools") and "task" not in rules.denied_tools and not is_small(model):
        inner = f"{system}\n\n{_TASK_INSTRUCTIONS}"
        helper = Agent(
            model,
            system_prompt=inner,
            tools=looking,
            transform_context=compaction(model, settings, system=inner, tools=looking, reply=reply),
            policies=_policies_of_task(settings),  # the agent's own are asked about it too
            **shared,
        )
        tools.append(helper.as_tool("task", _TASK_DESCRIPTION))
    if "todo" in settings.value("tools") and "todo" not in rules.denied_tools and not is_small(model):
        from swink_agent.tools import TodoTool

        tools.append(TodoTool())
    servers = _servers(options, root, redactor, warnings)
    beside = tools if servers is None else servers.tools_beside(tools, rules.denies_tool)
    shell = cast("BashTool | None", next((tool for tool in tools if tool.name == "bash"), None))
    agent = Agent(
        model,
        system_prompt=system,
        tools=beside if shell is None else OfferedTools(beside, shell.tasks),
        transform_context=compaction(model, settings, system=system, tools=tools, reply=reply),
        # Policies of packages come first, so that the others compare and count a call as rewritten. Hooks come last:
        # they are slow, and run only for calls that no other policy refuses.
        policies=[*watching, *limits, *_claim_check(model, settings, tools), *options.policies, *_hook_policies(hooks)],
        approve=approvals,
        approval_mode=ApprovalMode.WHERE_REQUIRED,
        **shared,
    )
    return StandardAgent(
        agent=agent,
        model_source=source,
        has_chosen_model=options.model is not None or settings["model"].value is not None,
        redactor=redactor,
        approvals=approvals,
        approval_mode=chosen,
        prepare=None if options.stream_fn else local_fetch(model, settings, options.on_local_state),
        sandbox=sandbox,
        shell=shell,
        warnings=tuple(warnings),
        servers=servers,
        hooks=hooks,
    )


def redactor_for(settings: Settings, credentials: Credentials, *, key: bytes | None = None) -> Redactor:
    """The redactor for the settings. It knows the keys and the environment's secrets, except unmasked ones.

    With a stored `key`, placeholders are the same in every process that has it.
    """
    return credentials.redactor(enabled=settings.value("masking"), unmasked=settings.value("unmask"), key=key)


def _folder(folder: Path) -> Path:
    try:
        return folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageProblem(f"{folder} is not a folder to work in: {error}") from error


def _system_prompt(root: Path, model: ModelSpec, options: AgentOptions, skills: Sequence[Skill]) -> str:
    from swink_agent.skills import skills_prompt

    files = () if options.project is None else options.project.notes_files
    notes = project_notes(files, _LOCAL_NOTES) if model.provider == "local" else project_notes(files)
    settings = options.settings
    return standard_prompt(
        root,
        instructions=settings.value("system"),
        also=settings.value("append_system") or "",
        added=options.added,
        notes=notes,
        skills=skills_prompt(skills) if skills else "",
    )


def _searches(
    stream_fn: StreamFn, model: ModelSpec, settings: Settings, tools: Sequence[AgentTool], warnings: list[str]
) -> bool:
    """Whether the model searches the web through its provider. Warns if that is wanted but not possible."""
    if not settings.value("web_search"):
        return False
    searches: Callable[[ModelSpec, bool], bool] | None = getattr(stream_fn, "searches_web", None)
    if searches is not None and searches(model, bool(tools)):
        return True
    beside = " next to tools" if searches is not None and searches(model, False) else ""
    warnings.append(
        f"web_search is not used: {model} cannot search the web through its provider{beside}; anthropic, "
        "openai-responses and gemini have models that can"
    )
    return False


def _key_finder(credentials: Credentials, redactor: Redactor) -> Callable[[str], str | None]:
    def find(provider: str) -> str | None:
        key = credentials.find(provider)
        if key is None:
            return None
        redactor.learn(key.value, f"{provider} key")
        return key.value

    return find


# -- tools ---------------------------------------------------------------------------------------------------


def _tools(
    root: Path, added: tuple[Path, ...], settings: Settings, rules: CallRules, warnings: list[str]
) -> tuple[list[AgentTool], Sandbox | None, str]:
    """The tools, their sandbox, and why no checkpoint can be kept, if that is known."""
    wanted = [name for name in settings.value("tools") if name not in rules.denied_tools]
    if not wanted:
        return [], None, ""
    from swink_agent.sandbox import open_sandbox
    from swink_agent.tools import standard_tools

    network, hosts = settings.value("network"), settings.value("allow_hosts")
    profile = sandbox_profile(root, added=added, network=network, hosts=hosts, settings=settings)
    # Before the sandbox: a folder that does not exist yet could be created by a command.
    changing = {"write_file", "edit_file", "bash"} & set(wanted)
    checkpoints, unkept = None, ""
    if settings.value("undo") and changing:
        checkpoints = open_checkpoints()
        unkept = why_unkept(checkpoints)
        warnings += [f"files will not be changed: {unkept}"] if unkept else []
    choice: str = settings.value("sandbox")
    opened = open_confined(profile, choice, warnings) if {"bash", "search"} & set(wanted) else None
    try:
        tools = standard_tools(
            root,
            profile if opened is None else opened,
            checkpoints=checkpoints,
            also=added,
            # Tried again later, with the chosen back end only: the user may have fixed it.
            open_sandbox=partial(open_sandbox, backend=choice) if opened is None else None,
        )
    except OSError as error:
        raise UsageProblem(f"{error.filename or root} cannot be opened: {error.strerror or error}") from error
    if "bash" in wanted:
        wanted += [name for name in TOOLS_OF_BASH if name not in rules.denied_tools]
    return [tool for tool in tools if tool.name in wanted], opened, unkept


def _servers(options: AgentOptions, root: Path, redactor: Redactor, warnings: list[str]) -> McpServers | None:
    """The MCP servers, if there are any. Warns about unusable ones."""
    if not options.uses_servers:
        return None
    found, secrets = options.settings.servers()
    names = {server.name for server in found}
    found = [*found, *[server for server in options.other_servers if server.name not in names]]
    for server in options.other_servers:
        for name, value in (*server.env.items(), *server.headers.items()):
            redactor.learn(value, name)
    for secret in secrets:
        redactor.register(secret)
    if options.servers is not None:
        return options.servers
    for server in found:
        if server.enabled and server.problem:
            warnings.append(f"{server.source}: the MCP server {server.name} is not used: {server.problem}")
    if not any(server.enabled for server in found):
        return None
    from .servers import McpServers

    return McpServers(found, folder=root, hidden=private_folders(options.settings))


def _hooks(
    options: AgentOptions, root: Path, added: tuple[Path, ...], redactor: Redactor, warnings: list[str]
) -> Hooks | None:
    """The hooks, if there are any. Warns if they are off because a hook started this program."""
    found = [hook for hook in options.settings.hooks if hook.enabled]
    if not found or not options.uses_hooks:
        return None
    from .hooks import Hooks
    from .own_program import HOOK_VARIABLE

    if HOOK_VARIABLE in os.environ:
        warnings.append(f"hooks are not used here: a hook or the status line started this ({HOOK_VARIABLE} is set)")
        return None
    return Hooks(found, folder=root, redactor=redactor, outside=partial(writable_folders, root, added))


def _hook_policies(hooks: Hooks | None) -> list[HookPolicy]:
    return [] if hooks is None else [hooks.policy()]


def _approvals(
    options: AgentOptions,
    hooks: Hooks | None,
    rules: CallRules,
    tools: list[AgentTool],
    redactor: Redactor,
    mode: ApprovalsMode,
) -> Approvals:
    from swink_agent.approvals import Approvals
    from swink_agent.tools import change_preview

    return Approvals(
        options.ask if options.ask is None or hooks is None else hooks.telling(options.ask),
        mode=mode,
        calls=rules,
        preview=change_preview(tools, redactor),
        redactor=redactor,
        trust=options.trust,
        remember=_remember_hosts,
    )


async def _remember_hosts(hosts: list[str]) -> None:
    """Adds the hosts to the user's settings: from the next start on, commands may reach them."""
    await asyncio.to_thread(add_hosts, hosts, path=settings_file())


# -- limits --------------------------------------------------------------------------------------------------


def turn_limit(settings: Settings, *, is_attended: bool) -> int | None:
    """The most replies in one run. If a user is present, there is no limit unless one was set."""
    limit = settings["max_turns"]
    return None if is_attended and limit.source == "default" else limit.value


def _policies(
    root: Path,
    added: tuple[Path, ...],
    settings: Settings,
    rules: CallRules,
    *,
    is_attended: bool,
    max_cost: float | None,
) -> list[Policy]:
    from swink_agent.policies import recommended

    max_turns = turn_limit(settings, is_attended=is_attended)
    return [rules, *recommended(root, also=added, max_turns=max_turns, max_cost=max_cost)]


def _policies_of_task(settings: Settings) -> list[Policy]:
    """The policies of the delegate that are about its own run alone."""
    from swink_agent.policies import LoopDetection, MaxTurns

    most = turn_limit(settings, is_attended=False)
    return [*([] if most is None else [MaxTurns(most)]), LoopDetection()]


def _claim_check(model: ModelSpec, settings: Settings, tools: Sequence[AgentTool]) -> list[Policy]:
    """The policies that send an unsupported answer back, for the models that need them."""
    wanted = settings.value("check_claims")
    if not tools or wanted == "off" or (wanted == "auto" and not is_small(model)):
        return []
    from swink_agent.local import ClaimCheck

    names = [tool.name for tool in tools]
    changing, looking = ([name for name in kind if name in names] for kind in (_CHANGING, _LOOKING))
    return [ClaimCheck(changing=changing, looking=looking)]


def _refuse_unpriced(model: ModelSpec, source: str) -> None:
    """Raises `UsageProblem` if the model's price is unknown, so that a cost limit cannot be kept."""
    from swink_agent.adapters.prices import worst_case

    if worst_case(model, 1, 1)[0] is None:
        raise UsageProblem(
            f"the price of {model} is not known, so the limit max_cost ({source}) cannot be kept: choose a model with "
            "a known price (`swink models` lists them), or limit turns and time instead (max_turns, timeout)"
        )


def _most_output(model: ModelSpec, max_cost: float | None, max_tokens: int | None) -> int | None:
    """The longest reply to ask for: the least of the user's limit, the model's limit and what `max_cost` can pay.

    The cost limit reserves the worst case of each request. One reply may use a quarter of the money, so that a small
    limit does not stop the first request to a model with a very long maximum reply.
    """
    if max_cost is None and max_tokens is None:
        return None
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(model)
    if max_tokens is not None and info is not None and info.output_limit:
        max_tokens = min(max_tokens, info.output_limit)
    if max_cost is None or info is None or not info.prices.output:
        return max_tokens
    affordable = int(max_cost / 4 / info.prices.output * 1_000_000)
    longest = min(_MOST_OUTPUT, info.output_limit or _MOST_OUTPUT)
    reply = max(min(affordable, longest), min(_LEAST_OUTPUT, longest))
    return reply if max_tokens is None else min(reply, max_tokens)
