"""What people ask for every day still works behind the walls, on both back ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile

OpenFn = Callable[[SandboxProfile], Sandbox]

ORDINARY = {
    "read and write": ("echo hi > new; cat new; rm new; ls", "hi\nhello.txt\ninside.sock\nvendor\n"),
    "pipes and substitutions": (
        "seq 1000 | sort -rn | head -1; echo $(printf %03d 7); cat <(echo x)",
        "1000\n007\nx\n",
    ),
    "redirections": (
        "{ echo out; echo err >&2; } > both 2>&1; wc -l < both; echo x > /dev/null; echo y > /dev/stdout",
        "2\ny\n",
    ),
    "here documents": ("cat <<'END' > t\nline\nEND\ncat t", "line\n"),
    "temporary files": (
        "f=$(mktemp) && echo x > $f && cat $f; cd $(mktemp -d) && touch a && ls; echo x > $TMPDIR/b",
        "x\na\n",
    ),
    "a background job": ("(sleep 0.05; echo late) & wait; echo done", "late\ndone\n"),
    "signals among its own": (
        "sleep 100 & kill $!; wait $! 2>/dev/null; echo $?; trap 'echo usr' USR1; kill -USR1 $$",
        "143\nusr\n",
    ),
    "git status, add, commit": (
        "echo more >> hello.txt; git add -A hello.txt; git commit -qm second; git log --oneline | wc -l; git status --short hello.txt",
        "2\n",
    ),
    "git branches": (
        "git checkout -q -b other; echo b > b; git add b; git commit -qm b; git checkout -q main; git merge -q other; git diff --stat HEAD~1 | tail -1; "
        "git branch --list | tr -d ' *' | sort | tr '\\n' ' '; git tag v1; git stash list",
        " 1 file changed, 1 insertion(+)\nmain other ",
    ),
    "git stash, reset and rebase": (
        "echo x >> hello.txt; git stash -q; git stash pop -q; git checkout -q -- hello.txt; git commit -q --allow-empty -m e; git reset -q --hard HEAD~1; git log --oneline | wc -l",
        "1\n",
    ),
    "git in a repository further in": (
        "cd vendor/lib; echo x > y; git add y; git commit -qm y; git log --oneline | wc -l",
        "2\n",
    ),
    "git clone and init elsewhere": (
        "git clone -q . copy 2>&1; git -C copy log --oneline | wc -l; git init -q new && git -C new status --short --branch | head -1",
        "1\n## No commits yet on",
    ),
    "python": (
        '$PY -c \'import json, tempfile, subprocess; tempfile.TemporaryFile(); print(subprocess.run(["echo", "sub"], capture_output=True).stdout)\'',
        "b'sub\\n'\n",
    ),
    "python in threads and processes": (
        "cat > p.py <<'END'\nimport multiprocessing, threading, asyncio\ndef f(q): q.put(7)\nif __name__ == '__main__':\n"
        "    q = multiprocessing.Queue(); p = multiprocessing.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()\n"
        "    t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n    asyncio.run(asyncio.sleep(0)); print('loop')\nEND\n$PY p.py",
        "7\nthread\nloop\n",
    ),
    "a C program": (
        "printf '#include <stdio.h>\\nint main(){puts(\"compiled\");}' > a.c && gcc a.c -o a && ./a",
        "compiled\n",
    ),
    "make": ("printf 'all: x\\nx:\\n\\t@echo made > x; cat x\\n' > Makefile; make -s -j4", "made\n"),
    "node": (
        'node -e \'require("fs").writeFileSync("n", "node"); console.log(require("fs").readFileSync("n", "utf8"))\'',
        "node\n",
    ),
    "tar and find": (
        "tar czf t.tgz hello.txt && mkdir u && tar xzf t.tgz -C u && find . -name hello.txt -not -path './vendor/*' | sort",
        "./hello.txt\n./u/hello.txt\n",
    ),
    "links and modes": (
        "ln -s hello.txt l; ln hello.txt h; chmod 600 h; stat -c %a hello.txt; readlink l; mv l m; cp -a m n; rm m n h",
        "600\nhello.txt\n",
    ),
    "moving folders": (
        "mkdir -p a/b; touch a/b/c; mv a z; ls z/b; rm -r z; mkdir vendor/x; mv vendor/x y; ls -d y",
        "c\ny\n",
    ),
    "reading the rest of the machine": (
        "head -1 /etc/passwd | cut -d: -f1; cat ~/notes.txt; ls -d /usr; id -u >/dev/null && echo id",
        "root\n# as it was\n/usr\nid\n",
    ),
    "much output": ("head -c 2000000 /dev/zero | tr '\\0' x | wc -c; seq 3", "2000000\n1\n2\n3\n"),
    "shell features": (
        "set -euo pipefail; a=(1 2 3); echo ${#a[@]}; [[ abc =~ b ]] && echo match; read -r x <<< in; echo $x; exec 3>f; echo y >&3; cat f",
        "3\nmatch\nin\ny\n",
    ),
    "an exit code": ("exit 7", ""),
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_work_goes_on(name: str, playground: Any, open_backend: OpenFn) -> None:
    script, expected = ORDINARY[name]
    if name == "node" and shutil.which("node") is None:
        script, expected = "echo node", "node\n"
    sandbox = open_backend(playground.profile())
    outcome = await playground.run(sandbox, script)
    if name == "git clone and init elsewhere":
        assert outcome.output.startswith(expected)
    else:
        assert outcome.output == expected
    assert outcome.code == (7 if name == "an exit code" else 0)
    assert playground.check(outcome) == []


async def test_two_megabytes_come_through_whole(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile())
    outcome = await playground.run(sandbox, "head -c 2000000 /dev/zero | tr '\\0' x")
    assert outcome.output == "x" * 2_000_000


async def test_git_config_fails_cleanly_and_leaves_nothing(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile())
    before = sorted(path.name for path in (playground.root / ".git").iterdir())
    outcome = await playground.run(sandbox, "git config user.name Evil")
    assert outcome.code != 0
    assert "config" in outcome.output
    await playground.run(sandbox, "rm -f .git/config.lock")
    assert sorted(path.name for path in (playground.root / ".git").iterdir()) == before
    assert (await playground.run(sandbox, "git status --short hello.txt; git log --oneline | wc -l")).output == "1\n"


async def test_the_network_is_there_when_it_is_allowed_but_sockets_of_daemons_are_not(
    playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile(network=True))
    outcome = await playground.run(sandbox, "exec 3<>/dev/tcp/127.0.0.1/$TCP && echo reached")
    assert outcome.output == "reached\n"
    tcp = playground.listeners[0]
    tcp.accept()[0].close()
    script = (
        '$PY -c "import os, socket; socket.socket(socket.AF_INET6); socket.socket(16, 2, 0)" && echo families;'
        'for name in $STREAM $INSIDE; do $PY -c "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])" $name; done;'
        '$PY -c "import socket; socket.socket(17, 3, 0)"; $PY -c "import socket; socket.socket(40, 1, 0)"; true'
    )
    outcome = await playground.run(sandbox, script)
    assert outcome.output.startswith("families\n")
    assert playground.check(outcome) == []


async def test_only_what_may_be_read_can_be_read(playground: Any, open_backend: OpenFn) -> None:
    (playground.base / "given").mkdir()
    (playground.base / "given/file").write_text("given\n")
    (playground.base / "given/.netrc").write_text(f"{playground.canary}\n")
    hidden = str(playground.base / "given/.netrc")
    sandbox = open_backend(playground.profile(read=(str(playground.base / "given"),), hidden=(hidden,)))
    outcome = await playground.run(
        sandbox,
        f"cat {playground.base}/given/file; cat {hidden} ~/notes.txt $OUT/canary; cat hello.txt; ls /usr >/dev/null && echo usr; echo x > new && cat new",
    )
    lines = [line for line in outcome.output.splitlines() if not line.startswith("cat:")]
    assert lines == ["given", "hello", "usr", "x"]
    assert playground.check(outcome) == []
