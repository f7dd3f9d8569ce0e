"""Reports: their content in each format, and that text of cases and models stays text."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache

import pytest
from markdown_it import MarkdownIt
from msgspec import structs

from swink_agent.evals import CaseResult, EvalRun, Score, StoredTrajectory, Summary, report
from swink_agent.evals.reports import FORMATS, ReportFormat

from .hostile import HOSTILE
from .junit_schema import checked
from .pages import Page
from .sample_runs import attempt, history, infected, ordinary, result, run_of

CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


@cache
def hostile_report(name: str, format_name: ReportFormat) -> str:
    """The report on a run in which every text is this one, made once for all tests."""
    return report(infected(HOSTILE.get(name, name)), format_name)


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'pdf'.*console, markdown, json, junit, html"):
        report(ordinary(), "pdf")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_same_run_gives_the_same_report(format_name: ReportFormat) -> None:
    assert report(ordinary(), format_name) == report(ordinary(), format_name)


@pytest.mark.table
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_report_holds_what_hides_or_moves_text(format_name: ReportFormat, name: str) -> None:
    text = hostile_report(name, format_name)
    if format_name != "json":
        assert CONTROLS.search(text) is None
        assert not [character for character in text if unicodedata.category(character) == "Cf"]
    else:
        json.loads(text)
    text.encode("utf-8")


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_run_without_cases_is_reported_too(format_name: ReportFormat) -> None:
    assert "0 of 0" in report(EvalRun("r", "s"), format_name) or format_name == "json"


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_unreadable_trajectory_is_mentioned_and_stops_nothing(format_name: ReportFormat, tmp_path: object) -> None:
    gone = structs.replace(attempt({"response": Score(0.0)}), trajectory=StoredTrajectory(f"{tmp_path}/gone", 0, 10))
    text = report(run_of(CaseResult("a", (gone,))), format_name)
    assert "cannot be read" in text or format_name == "console"


# -- console -------------------------------------------------------------------------------------------------


def test_the_console_has_a_line_for_each_case_and_says_why_one_failed() -> None:
    lines = report(ordinary(), "console").splitlines()
    assert lines[0] == "Questions about settings"
    assert lines[-1] == "5 of 7 cases passed (71.4 %, $0.0780, 24,960 tokens, 31.7 s)"
    assert "  passed  case-1  1.00  4 turns  2.2 s  $0.0120  Reads the port" in lines
    at = lines.index("  FAILED  flaky   0.83  4 turns  4.8 s  $0.0120  Answers at the second try")
    assert lines[at + 1 : at + 3] == [
        "          1 of 2 attempts passed; mean 0.83 ± 0.17; pass@1 50 %, pass@2 100 %",
        "          attempt 2, response: 0.00 is below 1.00: the reply does not contain '8443'",
    ]
    assert "          error: the model refused the request: overloaded" in lines


def test_a_case_cannot_forge_a_line_on_the_console() -> None:
    evil = "x\n  passed  forged  1.00"
    lines = report(infected(evil), "console").splitlines()
    assert not [line for line in lines if line.startswith("  passed")]


def test_no_share_is_rounded_up_to_all() -> None:
    failed, passed = (result("c", "", is_passed).attempts for is_passed in (False, True))
    results = [CaseResult(f"c{number}", passed if number else failed) for number in range(3000)]
    assert "(99.9 %," in report(run_of(*results), "console")


def test_an_incomplete_run_says_so() -> None:
    run = structs.replace(run_of(result("a", "", True)), cases=3, is_complete=False)
    assert "1 of 1 case passed; the run is not complete: the set has 3 cases" in report(run, "console")


# -- markdown ------------------------------------------------------------------------------------------------


def headings(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]


def cells(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "td_open"]


def test_markdown_has_a_table_of_the_cases_and_what_failed_beneath() -> None:
    text = report(ordinary(), "markdown")
    assert headings(text) == ["Questions about settings", "What failed", "flaky", "broken"]
    assert cells(text)[:7] == ["✅", "`case-1`", "Reads the port", "1.00", "4", "2.2 s", "$0.0120"]
    assert len(cells(text)) == 7 * 7
    assert "- **response**: 0.00 is below 1.00: the reply does not contain '8443'" in text


@pytest.mark.table
@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_of_a_hostile_case_has_our_headings_and_cells_alone(name: str) -> None:
    text = hostile_report(name, "markdown")
    assert len(headings(text)) == 3
    assert len(cells(text)) == 7
    kinds = {child.type for token in MarkdownIt("commonmark").parse(text) for child in token.children or ()}
    assert not kinds & {"html_inline", "link_open", "image"}
    assert "html_block" not in {token.type for token in MarkdownIt("commonmark").parse(text)}


# -- json ----------------------------------------------------------------------------------------------------


def test_json_has_the_figures_the_scores_and_what_the_agent_did() -> None:
    document = json.loads(report(ordinary(), "json"))
    assert (document["format"], document["version"]) == ("swink-agent-eval-report", 1)
    assert document["summary"] == {
        "total": 7,
        "passed": 5,
        "failed": 2,
        "tokens": 24_960,
        "seconds": 31.7,
        "cost": pytest.approx(0.078),
        "pass_rate": pytest.approx(5 / 7),
        "pass_rate_low": pytest.approx(0.3589, abs=1e-4),
        "pass_rate_high": pytest.approx(0.9178, abs=1e-4),
        "not_measured": 0,
        "tags": {},
    }
    flaky = next(one for one in document["results"] if one["case_id"] == "flaky")
    assert (flaky["passed"], flaky["pass_at"]) == (False, {"1": 0.5, "2": 1.0})
    assert flaky["scores"]["response"]["passed"] is False
    second = flaky["attempts"][1]
    assert second["tool_calls"][0]["name"] == "read_file"
    assert second["response"].startswith("I could not find it")


def test_json_knows_no_number_that_json_has_not() -> None:
    run = structs.replace(ordinary(), summary=Summary(7, 5, 2, float("nan"), 0, float("inf")))
    for evil in ("", "\ud800"):
        text = report(structs.replace(run, set_name=evil), "json")
        assert json.loads(text, parse_constant=pytest.fail)["summary"]["cost"] is None


# -- junit ---------------------------------------------------------------------------------------------------


def test_junit_tells_failures_from_errors() -> None:
    suite = checked(report(ordinary(), "junit"))[0]
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == ("7", "1", "1")
    assert [case.attrib["name"] for case in suite.findall("testcase")][:2] == [
        "case-1: Reads the port",
        "case-2: Finds a file by its content",
    ]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "response: 0.00 is below 1.00: the reply does not contain '8443'"
    assert "called read_file" in (failure.text or "")
    error = suite.find("testcase/error")
    assert error is not None
    assert error.attrib["type"] == "error"


@pytest.mark.table
@pytest.mark.parametrize("name", HOSTILE)
def test_junit_is_valid_whatever_a_case_says(name: str) -> None:
    root = checked(hostile_report(name, "junit"))
    assert len(list(root.iter("testcase"))) == 1


def test_junit_can_hold_every_character() -> None:
    every = "".join([chr(code) for code in (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x10010))])
    assert checked(report(infected(every), "junit"))[0].attrib["tests"] == "1"


def test_junit_has_only_times_that_are_numbers() -> None:
    run = structs.replace(ordinary(), summary=Summary(7, 5, 2, 0.0, 0, float("nan")), created=10**18)
    assert checked(report(run, "junit"))[0].attrib["time"] == "0.000"


# -- html ----------------------------------------------------------------------------------------------------


def test_the_page_has_a_summary_charts_and_a_page_for_each_case() -> None:
    page = Page(report(ordinary(), "html", history=history()))
    assert "5 of 7 cases passed" in page.text
    assert len(page.all("figure", "chart")) == 3
    assert len(page.all("circle", "dot")) == 3 * 9
    assert len(page.all("circle", "this")) == 3
    assert [one["id"] for one in page.all("section", "case")] == [f"c{number}" for number in range(1, 8)]
    assert "the reply does not contain '8443'" in page.text
    assert "The port is in the settings." in page.text
    assert len(page.all("span", "strip")) == 7


def test_the_page_shows_a_case_that_was_not_measured_as_neither_passed_nor_failed() -> None:
    missed = structs.replace(attempt({}, error="the provider is busy"), is_measured=False)
    run = run_of(CaseResult("busy", (missed,), "Busy"))
    page = Page(report(run, "html", history=history()))
    assert "0 of 1 case passed, 1 not measured" in page.text
    assert {one["title"] for one in page.all("span", "mark")} == {"not measured"}
    assert page.all("tr", "failed") == page.all("li", "failed") == []
    assert page.all("span", "failed") == []


def test_expectations_of_a_case_are_shown_without_absent_ones() -> None:
    page = Page(report(ordinary(), "html"))
    assert '"contains": "8443"' in page.text
    assert "null" not in page.text


def test_every_link_in_the_page_leads_to_something_in_it() -> None:
    page = Page(report(ordinary(), "html", history=history()))
    names = [found["id"] for _, found in page.tags if "id" in found]
    assert len(names) == len(set(names))
    assert {found["href"].removeprefix("#") for found in page.all("a")} <= set(names)


def test_one_run_alone_has_no_charts_over_time() -> None:
    assert Page(report(ordinary(), "html")).all("figure", "chart") == []


def test_runs_of_other_sets_and_unfinished_ones_are_not_drawn() -> None:
    run, (earlier, *_) = ordinary(), history()
    others = [structs.replace(earlier, set_id="another"), structs.replace(earlier, is_complete=False)]
    assert Page(report(run, "html", history=others)).all("figure", "chart") == []


@pytest.mark.table
@pytest.mark.parametrize("name", HOSTILE)
def test_the_page_of_a_hostile_case_is_made_of_our_elements_alone(name: str) -> None:
    hostile, plain = Page(hostile_report(name, "html")), Page(hostile_report("plain", "html"))
    assert hostile.all("section") == plain.all("section")
    assert hostile.all("svg") == plain.all("svg")
    assert len(hostile.all("article")) == len(plain.all("article"))


def test_the_page_has_a_policy_that_lets_no_script_run() -> None:
    html = report(ordinary(), "html")
    assert "default-src 'none'; style-src 'sha256-" in html
    assert "<script" not in html
    assert not re.search(r"<[^>]+ style=", html)
