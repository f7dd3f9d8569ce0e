"""What a user names on the command line: folders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Root may enter every folder, so the child becomes somebody else, if it can, once all that it needs is loaded.
_LOOK = """
import os, sys
from pathlib import Path
from swink_agent.app.errors import UsageProblem
from swink_agent.app.trust.folder_rules import project_root
from swink_agent.app.runs.input_files import folder_of
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    folder_of(sys.argv[1])
except UsageProblem as problem:
    print(problem)
print(project_root(Path(sys.argv[1])))
"""


def test_a_folder_that_this_user_may_not_enter_is_named() -> None:
    closed = Path(tempfile.mkdtemp())  # not tmp_path, which lies in folders that nobody else may enter
    closed.chmod(0o600)
    try:
        command = [sys.executable, "-c", _LOOK, str(closed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        closed.rmdir()
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"this user may not enter the folder {closed}: change into another, or give one with --cwd",
        os.path.realpath(closed),
    ]
