"""An earlier conversation as blocks: nothing is masked or drawn before it is visible."""

from __future__ import annotations

from swink_agent import (
    AssistantMessage,
    Image,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.core.types import FileImage
from swink_agent.tui.transcript import Block, ReplyBlock, ToolBlock, UserBlock, blocks_of
from swink_agent.tui.transcript.line import plain


def drawn(block: Block) -> list[str]:
    return [plain(line.spans).rstrip() for line in block.lines(60)]


def test_a_history_becomes_blocks_in_order() -> None:
    call = ToolCall("c1", "bash", {"command": "ls"})
    blocks = blocks_of(
        [
            UserMessage([Text("look"), Image(FileImage("/tmp/a.png"))]),
            AssistantMessage([Thinking("hm"), Text("I look"), call]),
            ToolResultMessage("c1", "a.txt", tool_name="bash"),
            AssistantMessage("there is a.txt"),
        ],
        redact=str,
    )
    assert [type(block) for block in blocks] == [UserBlock, ReplyBlock, ToolBlock, ReplyBlock]
    assert drawn(blocks[0]) == ["\u258c look", "\u258c \u25a3 /tmp/a.png"]
    assert drawn(blocks[1]) == ["\u25b8 thought \u00b7 1 line", "", "\u25cf I look"]
    assert [row.split() for row in drawn(blocks[2])] == [["\u2713", "bash", "ls", "\u2502", "a.txt", "done"]]
    assert isinstance(blocks[0], UserBlock)
    assert blocks[0].position == 0


def test_calls_without_a_result_and_replies_that_failed_say_so() -> None:
    blocks = blocks_of(
        [
            AssistantMessage([ToolCall("c1", "bash", {"command": "ls"})]),
            AssistantMessage("no", stop_reason=StopReason.ERROR, error_message="overloaded"),
            AssistantMessage("st", stop_reason=StopReason.ABORTED),
            ToolResultMessage("c9", "late", tool_name="bash", is_error=True, outcome=ToolOutcome.FAILED),
        ],
        redact=str,
    )
    assert [" ".join(drawn(block)[-1].split()) for block in blocks] == [
        "\u2717 bash ls outcome unknown",
        "\u2717 failed: overloaded",
        "\u2298 stopped",
        "\u2717 bash \u2502 late failed",
    ]


def test_text_is_masked_when_it_is_first_looked_at_and_then_always() -> None:
    masked: list[str] = []

    def redact(text: str) -> str:
        masked.append(text)
        return text.replace("secret", "[masked]")

    blocks = blocks_of(
        [
            UserMessage("my secret"),
            AssistantMessage([Text("the secret"), ToolCall("c", "x", {"a": "secret"})]),
            ToolResultMessage("c", "secret", details={"path": "p", "old": "secret 1", "new": "secret 2"}),
        ],
        redact=redact,
    )
    assert masked == ["secret"]  # the summary of the call
    for block in blocks:
        assert "[masked]" in "\n".join(drawn(block))
        block.open()
        assert "secret" not in "\n".join(drawn(block))
        assert "secret" not in block.text


def test_two_calls_of_one_reply_with_the_same_id_have_a_result_each() -> None:
    calls = [ToolCall("c", "bash", {"command": command}) for command in ("one", "two")]
    results = [ToolResultMessage("c", text, tool_name="bash") for text in ("first", "second")]
    blocks = blocks_of([AssistantMessage([*calls]), *results], redact=str)
    shown = [block.text.split() for block in blocks]
    assert [(words[1], words[-1]) for words in shown] == [("one", "first"), ("two", "second")]
