"""A text is searched for secrets once, for any number of readers, and again when a new secret is known."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from swink_agent import ModelSpec, Redactor
from swink_agent.app.agent.standard import AgentOptions, standard_agent
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.headless import HeadlessRun
from swink_agent.app.runs.output import StreamJsonOutput
from swink_agent.app.settings.settings import load_settings
from swink_agent.approvals import ApprovalQuestion
from swink_agent.approvals.question import QuestionView
from swink_agent.core.secrets import redaction
from swink_agent.core.secrets.unknown_secrets import find_shapes
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text

SECRET = "Zq8vTz4pLw0xRn7d"
MOST_SEARCHES = 3
"""Of one text in one approved call. Before texts were remembered, a command was searched 13 times."""


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text is searched."""
    counted: Counter[str] = Counter()

    def counting(searched: str) -> list[tuple[int, int, str]]:
        counted[searched] += 1
        return find_shapes(searched)

    monkeypatch.setattr(redaction, "find_shapes", counting)
    return counted


async def test_the_texts_of_an_approved_call_are_searched_once_for_all_who_read_them(
    tmp_path: Path, searches: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "work"
    folder.mkdir()
    command = f"printf 'its output\\n'; printf %s {SECRET} > made.txt"
    shown: list[str] = []

    def ask(question: ApprovalQuestion) -> str:
        shown.extend(row.text for row in QuestionView(question, made.redactor.redact).rows(80, 24))
        return "once"

    made = standard_agent(
        AgentOptions(
            settings=load_settings(path=Path("/no/such"), environ={}, flags={"approve": "ask", "sandbox": "off"}),
            credentials=Credentials(tmp_path / "keys.json", environ={"SERVICE_TOKEN": SECRET}),
            folder=folder,
            model=ModelSpec("anthropic", "claude-sonnet-4-6"),
            stream_fn=scripted(call("bash", command=command), text("Done.")),
            ask=ask,
        )
    )
    written: list[str] = []
    output = StreamJsonOutput(written.append, made.redactor, lambda: None)
    store = JsonlSessionStore(tmp_path / "sessions")
    session = store.create()
    with made, session, made.agent.subscribe(output.on_event):
        session.attach(made.agent)
        outcome = await HeadlessRun(made.agent).run("please do it")
    output.finish(outcome)

    assert (folder / "made.txt").read_text() == SECRET  # the tool was given what the model wrote
    stored = "".join(path.read_text() for path in (tmp_path / "sessions").rglob("*.jsonl"))
    for readable in ("\n".join(shown), "".join(written), stored):
        assert "[redacted:SERVICE_TOKEN:" in readable
        assert SECRET not in readable
    assert searches[command] >= 1
    assert searches["its output\n"] >= 1
    assert {searched: count for searched, count in searches.items() if count > MOST_SEARCHES} == {}


@pytest.mark.parametrize(
    "learn",
    [
        lambda redactor: redactor.register("opened-sesame-41", "DOOR"),
        lambda redactor: redactor.learn("opened-sesame-41", "DOOR_PASSWORD"),
        lambda redactor: redactor.learn_environment({"DOOR_PASSWORD": "opened-sesame-41"}),
    ],
)
def test_a_text_that_was_shown_is_masked_as_soon_as_its_secret_is_known(learn: Callable[[Redactor], object]) -> None:
    redactor = Redactor(environment={})
    said = "it answers to opened-sesame-41 alone"
    assert redactor.redact(said) == said
    learn(redactor)
    assert "opened-sesame-41" not in redactor.redact(said)
    assert "opened-sesame-41" not in redactor.redact_value({"said": [said]})["said"][0]


def test_a_shown_text_is_masked_once_an_ordinary_word_is_a_credential() -> None:
    redactor = Redactor(environment={})
    said = "login with DB_PASSWORD=sunshine"
    assert redactor.redact(said) == said
    redactor.learn("sunshine", "DB_PASSWORD")
    assert "sunshine" not in redactor.redact(said)


def test_a_text_that_was_masked_is_shown_once_its_value_is_to_stay_unmasked() -> None:
    redactor = Redactor(environment={}, unmasked="PUBLIC_TOKEN")
    said = "PUBLIC_ID_TOKEN=pub-4711-aa-bb-cc"
    masked = redactor.redact(said)
    redactor.learn("pub-4711-aa-bb-cc", "PUBLIC_TOKEN")
    assert masked != said
    assert redactor.redact(said) == said


def test_a_redactor_forgets_texts_and_masks_them_the_same_again(searches: Counter[str]) -> None:
    redactor = Redactor([SECRET], environment={})
    said = f"the first one, with {SECRET}"
    masked = redactor.redact(said)
    assert redactor.redact(said) == masked
    assert searches[said] == 1
    for number in range(5_000):
        redactor.redact(f"another text, number {number}")
    assert redactor.redact(said) == masked
    assert searches[said] == 2


def test_no_thread_sees_a_secret_after_it_was_registered() -> None:
    redactor = Redactor(environment={})
    texts = [f"line {number}: {SECRET}" for number in range(200)]
    registered = threading.Event()
    leaks: list[str] = []

    def read() -> None:
        for _ in range(20):
            is_known = registered.is_set()
            shown = [redactor.redact(line) for line in texts]
            if is_known:
                leaks.extend(line for line in shown if SECRET in line)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    redactor.register(SECRET)
    registered.set()
    for thread in threads:
        thread.join()
    assert leaks == []
    assert all(SECRET not in redactor.redact(line) for line in texts)
