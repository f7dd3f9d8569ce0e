"""What an editor may choose: the model, thinking, the mode and the commands of a session, and the ways to give a key.

Pure but for `usable_models` and `commands_of`, which read files: call them in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from acp import schema

from swink_agent.app.agent.providers import all_providers
from swink_agent.app.agent.skills import usable_skills
from swink_agent.app.talk.commands import COMMANDS, own_commands
from swink_agent.app.talk.commands.model_commands import model_items
from swink_agent.app.talk.front import PickItem
from swink_agent.approvals.modes import MODES as APPROVALS_MODES
from swink_agent.approvals.modes import ApprovalsMode
from swink_agent.core.types import ThinkingLevel
from swink_agent.rendering.escaping import safe_line

if TYPE_CHECKING:
    from swink_agent.app.agent.opening import Opening

PLAN = "plan"
_USUAL_FIRST: tuple[ApprovalsMode, ...] = ("ask", "smart", "auto", "all", "none")
MODES = {
    **{mode: f"{words[0].upper()}{words[1:]}." for mode in _USUAL_FIRST for words in (APPROVALS_MODES[mode],)},
    PLAN: "The model looks and plans, and changes nothing.",
}
ELSEWHERE = {
    "/key": "`swink keys set PROVIDER` and `swink acp --keys` store keys",
    "/bindings": "they are the keys of a terminal",
    "/clear": "it changes what a terminal shows",
    "/copy": "the editor copies",
    "/resume": "open the session in the editor",
    "/reset": "open a new session in the editor",
    "/fork": "fork the session in the editor",
    "/editor": "it needs a terminal",
    "/theme": "it changes what a terminal shows",
    "/quit": "it ends a terminal's program",
    "/q": "it ends a terminal's program",
}
"""The commands that editors do not have, each with what to do instead."""


def usable_models(opening: Opening) -> list[PickItem]:
    """The models that can be used: the user's aliases, those of providers with a key, and those of this machine."""
    aliases = {alias: item.value for alias, item in opening.settings.aliases().items()}
    return model_items(opening.credentials, "", aliases, is_usable=True)


def config_options(models: Sequence[PickItem], model: str, thinking: str, mode: str) -> list[Any]:
    """The options of a session, with their current values."""
    known = models if any(item.key == model for item in models) else [PickItem(model, model, "now"), *models]
    levels = [PickItem(level.value, level.value) for level in ThinkingLevel]
    modes = [PickItem(name, name.capitalize(), words) for name, words in MODES.items()]
    return [
        _select("model", "Model", "model", known, model),
        _select("thinking", "Thinking", "thought_level", levels, thinking),
        _select("mode", "Mode", "mode", modes, mode),
    ]


def mode_state(mode: str) -> schema.SessionModeState:
    modes = [schema.SessionMode(id=name, name=name.capitalize(), description=words) for name, words in MODES.items()]
    return schema.SessionModeState(current_mode_id=mode, available_modes=modes)


def commands_of(opening: Opening) -> list[schema.AvailableCommand]:
    """The commands that editors have, the user's and the project's own, and the skills."""
    shown = {one.name[1:]: (one.help, one.usage) for one in COMMANDS if one.name not in ELSEWHERE}
    for command in own_commands(opening.project):
        shown.setdefault(command.name[1:], (command.help, command.usage))
    for skill in usable_skills(opening.project):
        shown.setdefault(skill.name, (safe_line(skill.summary), "[text]"))
    return [_command(name, words, usage) for name, (words, usage) in shown.items()]


def is_skill(name: str, opening: Opening) -> bool:
    """Whether a command means a skill: its name is that of a skill, and of no command. Call it in a thread."""
    if name in [command.name for command in (*COMMANDS, *own_commands(opening.project))]:
        return False
    return name[1:] in [skill.name for skill in usable_skills(opening.project)]


def auth_methods(*, has_terminal: bool) -> list[Any]:
    """The ways to give a provider's key."""
    terminal = schema.TerminalAuthMethod(
        type="terminal",
        id="keys",
        name="Store a key",
        description="Asks for the key of a provider in a terminal, and stores it.",
        args=["--keys"],
    )
    variables = [
        schema.EnvVarAuthMethod(
            type="env_var",
            id=f"env-{provider.name}",
            name=f"{provider.name} key in a variable",
            vars=[schema.AuthEnvVar(name=provider.key_variables[0])],
        )
        for provider in all_providers()
        if provider.default_model and provider.key_variables and not provider.keys_of
    ]
    names = " or ".join([method.vars[0].name for method in variables])
    agent = schema.AuthMethodAgent(
        id="stored-key",
        name="Use the key that is set",
        description=f"Run `swink keys set PROVIDER` in a terminal, or start the editor with {names}.",
    )
    return [*([terminal] if has_terminal else []), agent, *variables]


def _select(option_id: str, name: str, category: Any, items: Sequence[PickItem], value: str) -> Any:
    options = [
        schema.SessionConfigSelectOption(value=item.key, name=item.label, description=item.detail or None)
        for item in items
    ]
    return schema.SessionConfigOptionSelect(
        type="select", id=option_id, name=name, category=category, current_value=value, options=options
    )


def _command(name: str, words: str, usage: str) -> schema.AvailableCommand:
    given = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=usage)) if usage else None
    return schema.AvailableCommand(name=name, description=words, input=given)
