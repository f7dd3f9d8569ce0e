"""The public names of this package, and the modules that define them. `core/lazy.py` reads this list."""

from swink_agent.approvals import ApprovalAnswer as ApprovalAnswer
from swink_agent.approvals import ApprovalChoice as ApprovalChoice
from swink_agent.approvals import ApprovalQuestion as ApprovalQuestion
from swink_agent.approvals import Approvals as Approvals
from swink_agent.approvals import CallRules as CallRules
from swink_agent.approvals import CommandRules as CommandRules
from swink_agent.approvals import Decision as Decision
from swink_agent.approvals import SessionTrust as SessionTrust
from swink_agent.approvals import safe_display as safe_display
from swink_agent.core.secrets.redaction import Redactor as Redactor
from swink_agent.local.claim_check import ClaimCheck as ClaimCheck

from .calls.same_model import SameModel as SameModel
from .calls.tool_lists import AllowList as AllowList
from .calls.tool_lists import DenyList as DenyList
from .calls.workspace_only import WorkspaceOnly as WorkspaceOnly
from .limits.budget import Budget as Budget
from .limits.budget import WorstCaseFn as WorstCaseFn
from .limits.loop_detection import LoopDetection as LoopDetection
from .limits.max_duration import MaxDuration as MaxDuration
from .limits.max_turns import MaxTurns as MaxTurns
from .recommended import recommended as recommended
from .records.audit import AuditLog as AuditLog
from .records.checkpoint import Checkpoint as Checkpoint
from .records.checkpoint import SavedConversation as SavedConversation
from .texts.content_filter import ContentFilter as ContentFilter
from .texts.pii import PII_KINDS as PII_KINDS
from .texts.pii import PiiRedactor as PiiRedactor
from .texts.prompt_guard import PromptGuard as PromptGuard
