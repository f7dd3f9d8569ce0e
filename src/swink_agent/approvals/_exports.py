"""The public names of the approvals and where they are defined. `core/lazy.py` reads this list."""

from swink_agent.rendering.escaping import safe_display as safe_display

from .approvals import ApprovalAnswer as ApprovalAnswer
from .approvals import ApprovalChoice as ApprovalChoice
from .approvals import ApprovalQuestion as ApprovalQuestion
from .approvals import Approvals as Approvals
from .approvals import SessionTrust as SessionTrust
from .call_rules import CallRules as CallRules
from .commands.rules import CommandRules as CommandRules
from .commands.rules import Decision as Decision
