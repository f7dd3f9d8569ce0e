"""Which calls the user is asked about: the modes, the order of Shift+Tab, and the question for a folder.

`app.agent.approval_modes` chooses the first mode, and `plan` restricts an agent that plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from swink_agent.app.trust.folder_rules import WorkedFolders
from swink_agent.approvals.modes import MODES

from .plan import CARRYING_OUT, ENTERED, LEFT, OFFER, PlanMode

if TYPE_CHECKING:
    from swink_agent.approvals.modes import ApprovalsMode

    from .conversation import Conversation
    from .tasks import SendGate

_MAY_WORK = "Run commands and edits in this folder without asking?"
_WORK_CHOICES = (
    ("yes", "in the sandbox, and /rewind undoes them; stored for this folder"),
    ("no", "you are asked about them; stored for this folder"),
)

_Place: TypeAlias = Literal["ask", "auto", "plan"]


class Modes:
    """The modes of one conversation, and how the user changes them."""

    def __init__(self, talk: Conversation, gate: SendGate) -> None:
        self.plan = PlanMode()
        self._talk = talk
        self._gate = gate
        self._said_of_work = False

    @property
    def approve(self) -> ApprovalsMode:
        """The current mode of approvals.

        Without a setting it is `smart` until the conversation is open, which may change it to `auto`.
        """
        if self._talk.opened is not None:
            return self._talk.opened.made.approvals.mode
        chosen = self._talk.opening.settings["approve"]
        return "smart" if chosen.source == "default" else chosen.value

    @property
    def meaning(self) -> str:
        """The current mode of approvals, and what it means."""
        hindrance = "" if self._talk.opened is None else self._talk.opened.made.approval_mode.obstacle
        if self.approve == "auto" and hindrance:
            return f"approvals are auto, but you are still asked about commands, because {hindrance}"
        return f"approvals are {self.approve}: {MODES[self.approve]}"

    def offer_work(self, keys: Sequence[str] = ()) -> None:
        """Asks whether calls in this folder may run unasked, unless that was answered or is not possible.

        The question stays in the transcript; until it is answered, the user is asked about calls. If `keys` are given,
        they or a click answer the question.
        """
        if self._talk.opened is None or not self._talk.opened.made.approval_mode.is_undecided:
            return
        if keys:
            rows = [(key, *words) for key, words in zip(keys, _WORK_CHOICES, strict=True)]
            self._talk.view.offer(_MAY_WORK, rows, self.choose_work)
        else:
            self._talk.notice("\n".join([_MAY_WORK, *[f"/work {key}: {words}" for key, words in _WORK_CHOICES]]))

    def choose_work(self, number: int) -> None:
        """Answers the question of `offer_work` by the number of the choice, if it was asked and not answered."""
        opened = self._talk.opened
        if opened is not None and opened.made.approval_mode.is_undecided and not self._said_of_work:
            self._talk.later(self._talk.submit(f"/work {_WORK_CHOICES[number][0]}"))

    async def answer_work(self, is_yes: bool) -> None:
        """Stores the answer in the user's own configuration, and changes the mode if none was chosen."""
        folders = WorkedFolders()
        await asyncio.to_thread(folders.keep, self._talk.opening.folder, is_yes)
        self._said_of_work = True
        chosen = None if self._talk.opened is None else self._talk.opened.made.approval_mode
        is_default = self._talk.opening.settings["approve"].source == "default"
        if chosen is not None and is_default and self.approve in ("auto", "smart"):
            self.set_approve("auto" if is_yes and not chosen.obstacle else "smart")
        where = f"stored for {self._talk.folder}" if is_yes else f"stored for {self._talk.folder}, where you are asked"
        self._talk.notice(f"{where}; {self.meaning}")

    async def said_of_work(self) -> str:
        """The user's answer for the folder, in words."""
        answer = await asyncio.to_thread(WorkedFolders().answer, self._talk.opening.folder)
        said = "not yet allowed" if answer is None else "allowed" if answer else "not allowed"
        return f"you have {said} commands and edits to run unasked in {self._talk.folder}; {self.meaning}"

    def set_approve(self, mode: ApprovalsMode) -> None:
        """Sets which calls need the user's approval."""
        if self._talk.opened is not None:
            self._talk.opened.made.approvals.mode = mode
        self._talk.front.changed()

    def cycle(self) -> None:
        """Switches to the next of ask, auto and plan. If `auto` is not possible, uses `smart` and shows the reason."""
        if not self._gate.is_open:
            self._talk.later(self._cycle_once_open())
            return
        if self._talk.opened is None or (self.plan.mode == "Plan" and self._talk.is_running):
            self.change_plan()  # shows why it cannot change
            return
        approvals, chosen = self._talk.opened.made.approvals, self._talk.opened.made.approval_mode
        is_plan = self.plan.mode == "Plan"
        place = _next_place(approvals.mode, is_plan=is_plan, is_running=self._talk.is_running)
        if place == "plan":
            self.change_plan()
            return
        if place == "auto" and chosen.obstacle:
            self.set_approve("smart")
            self._talk.notice(f"{self.meaning}; auto is not possible here, because {chosen.obstacle}")
            return
        if is_plan:
            self.change_plan()
        if not is_plan or approvals.mode not in ("all", "none"):  # the user's own choice, which is not in this order
            self.set_approve(place)
            self._talk.notice(self.meaning)

    async def _cycle_once_open(self) -> None:
        await self._gate.passed()
        self.cycle()

    def change_plan(self) -> None:
        """Switches plan mode on or off; leaving it offers to carry out the plan. Between runs only."""
        if self._talk.opened is None:
            self._talk.notice("there is no model to plan with yet: /key adds a key, /model chooses a model", "error")
            return
        if self._talk.is_running:
            self._talk.notice("the mode can only change between runs: Esc stops this one")
            return
        agent = self._talk.opened.agent
        if self.plan.mode == "Execute":
            self.plan.enter(agent)
            key = self._talk.opening.settings.key_map().shown("mode")
            has_key = bool(key) and any(key in shown for shown, _ in self._talk.front.keys)
            self._talk.notice(ENTERED.format(ways=f"{key} or /plan" if has_key else "/plan"))
        elif plan := self.plan.leave(agent):
            self._talk.later(self._offer_plan(plan))
        else:
            self._talk.notice(LEFT)
        self._talk.usage.set_agent(agent, self._talk.opening.settings)
        self._talk.front.changed()

    async def _offer_plan(self, plan: str) -> None:
        if await self._talk.front.confirm("Carry out this plan?", OFFER, "yes") != "yes":
            self._talk.notice(f"{LEFT}; the plan was not sent")
        else:
            await self._talk.prompt(f"{CARRYING_OUT}{plan}")


def _next_place(mode: ApprovalsMode, *, is_plan: bool, is_running: bool) -> _Place:
    """The mode after Shift+Tab: ask, auto, plan, and again. `smart` counts as `auto`. No plan mode during a run."""
    if is_plan:
        return "ask"
    if mode == "ask":
        return "auto"
    return "ask" if is_running else "plan"
