"""A model edits a masked view: the file keeps its secrets, and no placeholder is written into it."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import AgentToolResult, ProposedCall, Redactor, ToolContext, extract_text
from swink_agent.approvals import ApprovalChoice, ApprovalQuestion, Approvals
from swink_agent.tools import EditFileTool, ReadFileTool, SearchTool, Workspace, WriteFileTool, change_preview

SECRET = "canary-4711-swordfish"
OTHER = "canary-0815-mackerel"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75xyzAAAA\nbbbbCCCCddddEEEEffff\n-----END RSA PRIVATE KEY-----"
PLACEHOLDER = re.compile(r"\[redacted:[A-Za-z0-9_.-]+:[0-9a-f]{8}\]")


class Desk:
    """A folder, its tools, and one redactor for all of them."""

    def __init__(self, root: Path, redactor: Redactor | None = None) -> None:
        self.root = root
        self.redactor = redactor or Redactor([SECRET, OTHER], environment={"DB_PASSWORD": "postgres"})
        workspace = Workspace(root)
        self.reading, self.writing, self.editing = (
            ReadFileTool(workspace),
            WriteFileTool(workspace),
            EditFileTool(workspace),
        )
        self.searching = SearchTool(workspace, "off")

    async def use(self, tool: Any, **arguments: Any) -> AgentToolResult:
        return await tool.execute(arguments, ToolContext(redactor=self.redactor))

    async def read(self, path: str = "f", **more: Any) -> str:
        return said(await self.use(self.reading, path=path, **more))

    async def write(self, content: str, path: str = "f") -> AgentToolResult:
        return await self.use(self.writing, path=path, content=content)

    async def edit(self, *edits: tuple[str, str], path: str = "f") -> AgentToolResult:
        return await self.use(self.editing, path=path, edits=[{"old": old, "new": new} for old, new in edits])


def said(result: AgentToolResult) -> str:
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content)


def refused(result: AgentToolResult) -> str:
    assert result.is_error
    return extract_text(result.content)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        f"KEY={SECRET}\nPORT=8000\n",
        f"KEY={SECRET}\r\nPORT=8000\r\n",
        f"a {SECRET} b {OTHER} c {SECRET}\nPORT=8000",
        f"{SECRET}{OTHER}\nPORT=8000\n",
        f"before\n{PEM}\nPORT=8000\nafter\n",
        f"before\r\n{PEM}\r\nPORT=8000\r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
        "PASSWORD=postgres\nurl: postgres://u:hunter22@h/postgres\nPORT=8000\nname: postgres\n",
        f"token: {base64.b64encode(SECRET.encode()).decode()}\nPORT=8000\n",
        f"hex {SECRET.encode().hex(':')}\nPORT=8000\n",
        f"{base64.encodebytes(b'x' * 50 + SECRET.encode() + b'y' * 50).decode()}PORT=8000\n",
        f"\ufeffKEY={SECRET}\nPORT=8000\n",
        f"the mask [redacted] and {SECRET} and [redacted:key:00000000]\nPORT=8000\n",
    ],
)
async def test_whichever_part_is_rewritten_the_secrets_stay_what_they_were(desk: Desk, content: str) -> None:
    file = desk.root / "f"
    file.write_bytes(content.encode())
    wanted = content.replace("8000", "9000").encode()
    view = await desk.read()
    for secret in (SECRET, OTHER, "MIIE", "bbbbCCCC", "hunter22"):
        assert secret not in view
    said(await desk.edit(("PORT=8000", "PORT=9000")))
    assert file.read_bytes() == wanted
    file.write_bytes(content.encode())
    view = await desk.read()
    said(await desk.write(view.replace("PORT=8000", "PORT=9000")))
    assert file.read_bytes() == wanted


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig"])
async def test_files_in_other_encodings_keep_theirs(desk: Desk, encoding: str) -> None:
    file = desk.root / "f"
    file.write_bytes(f"Größe=1\nKEY={SECRET}\n".encode(encoding))
    view = (await desk.read()).split("\n[the file is")[0]
    said(await desk.edit(("=1", "=2")))
    assert file.read_bytes() == f"Größe=2\nKEY={SECRET}\n".encode(encoding)
    said(await desk.write(view.replace("=1", "=3") + "\n" * (not view.endswith("\n"))))
    assert file.read_bytes() == f"Größe=3\nKEY={SECRET}\n".encode(encoding)


async def test_an_edit_finds_its_place_by_placeholders_and_can_move_and_repeat_them(desk: Desk) -> None:
    file = desk.root / "f"
    file.write_text(f"a={SECRET}\nb={OTHER}\n")
    one, two = PLACEHOLDER.findall(await desk.read())
    said(await desk.edit((f"a={one}", f"renamed={one}")))
    assert file.read_text() == f"renamed={SECRET}\nb={OTHER}\n"
    said(await desk.write(f"x={two}\ny={two}\n"))
    assert file.read_text() == f"x={OTHER}\ny={OTHER}\n"


async def test_a_placeholder_that_cannot_be_put_back_is_refused_and_nothing_is_written(desk: Desk) -> None:
    file = desk.root / "f"
    file.write_text(f"a={SECRET}\nb=1\n")
    (desk.root / "g").write_text(f"a={OTHER}\n")
    (here,) = PLACEHOLDER.findall(await desk.read())
    (there,) = PLACEHOLDER.findall(await desk.read("g"))
    flipped = here[:-2] + ("0" if here[-2] != "0" else "1") + "]"
    for wrong in (
        there,  # another file's
        "[redacted:API_KEY:deadbeef]",  # made up
        flipped,
        here[:-1],
        here[:-3],
        here.upper(),
        here.strip("[]"),
        "[redacted]",
        "[redacted API_KEY]",
        "[redacted:API_KEY]",
    ):
        for change in (await desk.write(f"a={wrong}\n"), await desk.edit(("b=1", f"b={wrong}"))):
            assert "was not written" in refused(change), wrong
            assert SECRET not in refused(change)
        assert "was not written" in refused(await desk.write(f"a={wrong}\n", path="new")), wrong
    assert here in refused(await desk.write(f"a={there}\n"))
    assert file.read_text() == f"a={SECRET}\nb=1\n"
    assert not (desk.root / "new").exists()


async def test_text_that_only_looks_like_a_placeholder_may_stay_where_it_is(desk: Desk) -> None:
    file = desk.root / "f"
    file.write_text('assert masked == "[redacted]"\nassert other == "[redacted:key:12345678]"\n')
    said(await desk.edit(("masked", "shown")))
    assert file.read_text() == 'assert shown == "[redacted]"\nassert other == "[redacted:key:12345678]"\n'
    assert "was not written" in refused(await desk.edit(("shown", '"[redacted]" == shown')))


async def test_a_secret_known_by_its_place_cannot_be_moved_where_it_would_show(desk: Desk) -> None:
    file = desk.root / "f"
    content = "url: postgres://u:hunter22@h/x\nPASSWORD=postgres\n"
    file.write_text(content)
    view = await desk.read()
    for mask in PLACEHOLDER.findall(view):
        assert "no longer recognised" in refused(await desk.write(f"the word is {mask} !\n"))
        assert "no longer recognised" in refused(await desk.edit(("url:", f"{mask}\nurl:")))
    assert file.read_text() == content


async def test_files_changed_on_disk_meanwhile_are_not_overwritten(desk: Desk) -> None:
    file = desk.root / "f"
    file.write_text(f"a={SECRET}\n")
    view = await desk.read()
    file.write_text(f"a={OTHER}\n")
    refused(await desk.write(view))
    assert file.read_text() == f"a={OTHER}\n"


async def test_a_value_has_one_placeholder_in_a_conversation_and_others_elsewhere(desk: Desk, tmp_path: Path) -> None:
    for name in ("f", "g"):
        (desk.root / name).write_text(f"a={SECRET}\n")
    assert await desk.read("f") == await desk.read("g")
    assert await Desk(tmp_path).read("f") != await desk.read("f")
    one, two = (Desk(tmp_path, Redactor([SECRET], environment={}, key=b"session 7")) for _ in range(2))
    assert await one.read("f") == await two.read("f")


@pytest.mark.parametrize("offset", range(1, 9))
async def test_no_line_of_a_key_shows_wherever_reading_begins_and_ends(desk: Desk, offset: int) -> None:
    (desk.root / "f").write_text(f"one\ntwo\n{PEM}\nseven\neight\n")
    for limit in (1, 2, 9):
        view = await desk.read(offset=offset, limit=limit)
        for hidden in ("MIIE", "bbbb", "RSA"):
            assert hidden not in view
    whole = await desk.read(offset=7)
    assert whole.startswith("seven\neight\n")  # lines have the numbers that they have in the file
    assert "lines 7-8 of 8" in whole


@pytest.mark.sweep
async def test_no_line_of_a_key_shows_in_a_large_file_either(desk: Desk) -> None:
    filler = "filler line\n" * 1_500_000
    (desk.root / "f").write_text(f"{filler}{PEM}\n{filler}")
    at = 1_500_000
    for offset in range(at - 1, at + 6):
        for limit in (1, 2, 9):
            view = await desk.read(offset=offset, limit=limit)
            for hidden in ("MIIE", "bbbb"):
                assert hidden not in view


async def test_a_line_of_a_key_that_is_searched_for_is_not_shown(desk: Desk) -> None:
    (desk.root / "f").write_text(f"one\n{PEM}\nplain words\n" + "x" * 400 + SECRET + "y" * 400 + "\n")
    (desk.root / "g").write_text("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=\n")
    shown = said(await desk.use(desk.searching, pattern="MIIE|bbbb|plain|x{70}|QUJD|swordfish"))
    for hidden in ("MIIE", "bbbb", "canary", "swordfish"):
        assert hidden not in shown
    assert "f:6: plain words" in shown
    assert "g:1: QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=" in shown  # base64 that is no part of anything
    assert "f:3: [redacted:private-key:" in shown


async def test_the_question_shows_the_masked_file_and_says_that_its_secrets_stay(desk: Desk) -> None:
    (desk.root / "f").write_text(f"a={SECRET}\nb={OTHER}\nc=1\n")
    view = await desk.read()
    preview = change_preview([desk.writing, desk.editing], desk.redactor)
    questions: list[ApprovalQuestion] = []

    def ask(question: ApprovalQuestion) -> ApprovalChoice:
        questions.append(question)
        return ApprovalChoice.ONCE

    approvals = Approvals(ask, preview=preview, redactor=desk.redactor)
    mask = PLACEHOLDER.findall(view)[0]
    for name, arguments in (
        ("edit_file", {"path": "f", "edits": [{"old": "c=1", "new": "c=2"}]}),
        ("write_file", {"path": "f", "content": f"a={mask}\n"}),
        ("write_file", {"path": "f", "content": "a=[redacted:a:00000000]\n"}),
        ("write_file", {"path": "new", "content": f"a={SECRET}\n"}),
    ):
        await approvals(ProposedCall("1", name, arguments))
    edit, removal, refusal, new = (question.render() for question in questions)
    assert edit.splitlines()[-1] == "  2 masked values stay as they are"
    assert "- c=1\n+ c=2" in edit
    assert mask in edit
    assert removal.splitlines()[-1] == "  1 masked value stays as it is; 1 masked value is removed"
    assert "it would fail: f was not written" in refusal
    assert f"+ a={mask}" in new
    assert all(SECRET not in question.display + question.render() + repr(question) for question in questions)


WORDS = st.text(alphabet="abc =:\n\"'é", max_size=12)
SECRETS = st.sampled_from([SECRET, OTHER, PEM, base64.b64encode(SECRET.encode()).decode(), OTHER.encode().hex()])


@settings(max_examples=150)
@given(parts=st.lists(st.one_of(WORDS, SECRETS), max_size=8), ends=st.sampled_from(["\n", "\r\n"]), data=st.data())
@pytest.mark.sweep
def test_any_edit_of_the_rest_leaves_every_secret_and_every_other_byte(
    tmp_path: Path, parts: list[str], ends: str, data: st.DataObject
) -> None:
    asyncio.run(edit_the_rest(tmp_path, parts, ends, data))


async def edit_the_rest(tmp_path: Path, parts: list[str], ends: str, data: st.DataObject) -> None:
    desk = Desk(tmp_path)
    file = tmp_path / "f"
    # Around each, what keeps it apart from the next: what stands together may be a secret of another kind.
    content = "start\n" + "".join(f"<{part}>" for part in parts) + "\nend\n"
    file.write_bytes(content.replace("\n", ends).encode())
    view = await desk.read()
    for secret in (SECRET, OTHER, "MIIE", "bbbbCCCC", base64.b64encode(SECRET.encode()).decode()[4:-4]):
        assert secret not in view
    at = data.draw(st.sampled_from([found.start() for found in re.finditer("[<>]", view)] or [0]))
    changed = view[:at] + "NEW\n" + view[at:]
    masks = PLACEHOLDER.findall(view)
    masked = desk.redactor.mask(content)
    assert [masked.text[span.start : span.end] for span in masked.spans] == masks
    originals = iter([span.original for span in masked.spans])
    wanted = PLACEHOLDER.sub(lambda _: next(originals), changed).replace("\n", ends).encode()
    said(await desk.write(changed))
    assert file.read_bytes() == wanted
    file.write_bytes(content.replace("\n", ends).encode())
    await desk.read()
    said(await desk.edit(("start\n", "begin\n")))
    assert file.read_bytes() == content.replace("start", "begin", 1).replace("\n", ends).encode()
