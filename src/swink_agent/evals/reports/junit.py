"""The report as JUnit XML, for build servers.

Its elements are valid under the schemas in use: that of Ant's task, which is the strictest, and that of Jenkins. A
suite is a run, a test is a case. A case that did not reach a threshold is a failure, one that could not be scored is an
error. XML cannot represent most control characters, so they are written out.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from swink_agent.evals.types import Attempt, CaseResult, EvalRun
from swink_agent.rendering.characters import one_line, visible

from .words import case_name, headline, invocation_of, pass_words, reasons, run_facts, tag_rows, title_of

_LONGEST_MESSAGE = 400
_LONGEST_TEXT = 20_000


def junit_report(*runs: EvalRun) -> str:
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for number, run in enumerate(runs):
        lines += _suite(run, number)
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _suite(run: EvalRun, number: int) -> list[str]:
    errors = sum(_is_error(result) for result in run.results)
    failures = sum(not result.passed for result in run.results) - errors
    variant = one_line(run.variant, 80)
    attributes = {
        "id": str(number),
        "package": _token(run.set_id),
        "name": f"{title_of(run)} [{variant}]" if variant else title_of(run),
        "timestamp": _timestamp(run.created),
        "hostname": "localhost",
        "tests": str(len(run.results)),
        "failures": str(failures),
        "errors": str(errors),
        "time": _decimal(run.summary.seconds),
    }
    facts = [*run_facts(run), *[(f"tag {tag}", f"{passed}, {rate}") for tag, passed, rate, _ in tag_rows(run.summary)]]
    lines = [f"  <testsuite{_attributes(attributes)}>", "    <properties>"]
    for name, value in facts:
        shown = _attributes({"name": name.lower().replace(" ", "-"), "value": value})
        lines.append(f"      <property{shown}></property>")
    lines.append("    </properties>")
    for result in run.results:
        lines += _case(run, result)
    lines += [f"    <system-out>{_text(headline(run))}</system-out>", "    <system-err></system-err>"]
    return [*lines, "  </testsuite>"]


def _case(run: EvalRun, result: CaseResult) -> list[str]:
    name = case_name(result)
    attributes = {
        "classname": _token(f"{run.set_id}.{run.variant}" if run.variant else run.set_id),
        "name": f"{_token(result.case_id)}: {name}" if name else _token(result.case_id),
        "time": _decimal(result.seconds),
    }
    if result.passed:
        return [f"    <testcase{_attributes(attributes)}></testcase>"]
    element = "error" if _is_error(result) else "failure"
    what, why = next((reason for attempt in result.attempts for reason in reasons(attempt)), ("error", "not run"))
    problem = {"message": f"{one_line(what, 60)}: {one_line(why, _LONGEST_MESSAGE)}", "type": _token(what)}
    text = "\n".join(part for part in (pass_words(result), *map(_attempt, result.attempts)) if part)
    return [
        f"    <testcase{_attributes(attributes)}>",
        f"      <{element}{_attributes(problem)}>{_text(text)}</{element}>",
        "    </testcase>",
    ]


def _is_error(result: CaseResult) -> bool:
    return not result.passed and (result.error is not None or not result.attempts)


def _attempt(attempt: Attempt) -> str:
    found = reasons(attempt)
    if not found:
        return ""
    invocation, problem = invocation_of(attempt)
    lines = [f"attempt {attempt.number}:", *[f"  {what}: {why}" for what, why in found]]
    lines += [f"  {problem}"] if problem else []
    lines += [f"  called {call.name}" for call in invocation.tool_calls]
    lines += [f"  replied: {invocation.response}"] if invocation.response.strip() else []
    return "\n".join(lines)[:_LONGEST_TEXT]


def _attributes(values: dict[str, str]) -> str:
    return "".join([f" {name}={quoteattr(_valid(value))}" for name, value in values.items()])


def _text(text: str) -> str:
    return escape(_valid(visible(text)))


def _token(text: str) -> str:
    """A name, which the schema requires to have at least one character."""
    return one_line(text) or "unnamed"


def _valid(text: str) -> str:
    """Replaces the two remaining characters that XML does not allow."""
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def _timestamp(milliseconds: int) -> str:
    """A time in UTC, without a zone, as the schema requires."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"


def _decimal(seconds: float) -> str:
    return f"{seconds:.3f}" if math.isfinite(seconds) else "0.000"
