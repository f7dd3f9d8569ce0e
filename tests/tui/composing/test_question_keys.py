"""Which answers a question offers."""

from __future__ import annotations

import pytest

from swink_agent import ProposedCall
from swink_agent.approvals.answers import kept_rule
from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion


@pytest.mark.parametrize(
    ("prefix", "rule"),
    [
        *[("git commit", "bash: git commit *"), ("mkdir", "bash: mkdir *")],
        # trust for the session covers listed options alone, a rule would cover `-vettool=…` and the like
        *[("go vet", ""), ("go build", ""), ("isort", "")],
    ],
)
def test_a_rule_that_is_kept_covers_no_more_than_the_trust_that_is_offered(prefix: str, rule: str) -> None:
    request = ProposedCall("1", "bash", {"command": f"{prefix} x"})
    choices = tuple(ApprovalChoice)
    question = ApprovalQuestion(request=request, display="", why="", prefix=prefix, choices=choices, command="command")
    assert kept_rule(question) == rule
