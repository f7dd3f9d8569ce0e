"""The public names of the sandbox and where they are defined. `core/lazy.py` reads this list."""

from .errors import BackendReport as BackendReport
from .errors import SandboxClosed as SandboxClosed
from .errors import SandboxError as SandboxError
from .errors import SandboxUnavailable as SandboxUnavailable
from .names import NAMES as NAMES
from .names import Name as Name
from .network.reached import Reached as Reached
from .open import open_sandbox as open_sandbox
from .open import open_unconfined as open_unconfined
from .open import probe_backends as probe_backends
from .places import why_not_written as why_not_written
from .process import Sandbox as Sandbox
from .process import SandboxedProcess as SandboxedProcess
from .profile import DEFAULT_ALLOW as DEFAULT_ALLOW
from .profile import ProcessLimits as ProcessLimits
from .profile import SandboxProfile as SandboxProfile
from .profile import clean_environment as clean_environment
from .profile import default_hidden as default_hidden
from .programs import find_program as find_program
from .repositories.enclosing import repository_folders as repository_folders
from .widened import profile_with_access as profile_with_access
