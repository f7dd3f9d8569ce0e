"""The public names of the policies, one line each, and where they live: the one list, which `core/lazy.py` reads."""

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

from .allow_list import AllowList as AllowList
from .audit import AuditLog as AuditLog
from .budget import Budget as Budget
from .budget import WorstCaseFn as WorstCaseFn
from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import SavedConversation as SavedConversation
from .claim_check import ClaimCheck as ClaimCheck
from .content_filter import ContentFilter as ContentFilter
from .deny_list import DenyList as DenyList
from .loop_detection import LoopDetection as LoopDetection
from .max_duration import MaxDuration as MaxDuration
from .max_turns import MaxTurns as MaxTurns
from .pii import PII_KINDS as PII_KINDS
from .pii import PiiRedactor as PiiRedactor
from .prompt_guard import PromptGuard as PromptGuard
from .recommended import recommended as recommended
from .workspace_only import WorkspaceOnly as WorkspaceOnly
