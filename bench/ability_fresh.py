"""The second set of tasks. It shows whether a change helps with all tasks, or only with those of the first set.

The tasks were written by kind, before any prompt was changed. Run them before a change of a prompt and after it, but do
not look at single results while you change one. The kinds are those that people begin with:

- a value in a named file, and a value whose file is not named and has to be looked for;
- files by their content: several of them, one of two candidates, and none;
- numbers that have to be computed from files: a sum, a maximum, how many lines and how many files;
- changes of an existing file: a value, a line at its end, an entry among others, a name throughout, a mistake;
- a new file with a given content; a number found out and then written down;
- talk that needs no tool, where a folder has to stay as it is.

If you improve a prompt for one of these tasks, move the task to the first set and write another one here.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .ability_tasks import Outcome, Task

__all__ = ["FRESH_TASKS"]

_SERVER = {
    "src/server.js": "const app = require('./app');\n\napp.listen(4173, () => console.log('up'));\n",
    "src/app.js": "module.exports = { listen(port, ready) { ready(); } };\n",
    "README.md": "# Shop\n\nStart it with `node src/server.js`.\n",
}
_MAIL = {
    "lib/mail.py": "def send_mail(to, text):\n    print(to, text)\n",
    "lib/signup.py": "from mail import send_mail\n\n\ndef signup(user):\n    send_mail(user, 'Welcome!')\n",
    "lib/orders.py": "def order(item):\n    return {'item': item}\n",
}
_NOTES = {
    "notes/april.txt": "We sowed the beans.\n",
    "notes/may.txt": "The first harvest of salad.\n",
    "notes/june.txt": "Rain for a week. The harvest was late.\n",
    "notes/july.txt": "Hot and dry.\n",
}
_ERRORS = (
    "08:00 start\n08:03 error: no route\n08:04 retry\n08:09 error: no route\n08:10 retry\n"
    "08:15 error: timeout\n08:21 error: no route\n08:30 stop\n"
)
_CONF = "listen = 0.0.0.0\nmax_connections = 50\ntimeout = 30\n"
_LOOP = "cnt = 0\nfor word in ['a', 'b', 'c']:\n    cnt = cnt + 1\nprint(cnt)\n"


def _mentions(*names: str, but_not: tuple[str, ...] = ()) -> Any:
    return lambda o: o.says(*names) and not any(name in o.answer for name in but_not)


def _is_no(outcome: Outcome) -> bool:
    answer = outcome.answer.lower()
    return re.search(r"\b(no|none|not)\b", answer) is not None and re.search(r"\byes\b", answer) is None


def _json_of(outcome: Outcome, path: str) -> Any:
    try:
        return json.loads(outcome.text(path))
    except ValueError:
        return None


def _tells_even(outcome: Outcome) -> bool:
    """Whether the code asks for evenness, in any of its usual spellings; it is not run, for a model wrote it."""
    code = outcome.text("parity.py").replace(" ", "").replace("(", "").replace(")", "")
    is_right = any(text in code for text in ("n%2==0", "notn%2", "n%2!=1", "n&1==0", "notn&1"))
    return code.startswith("defis_even") and is_right and "n%2==1" not in code


def _is_untouched(outcome: Outcome) -> bool:
    return not any(outcome.folder.iterdir())


FRESH_TASKS: tuple[Task, ...] = (
    Task(
        "read a toml",
        "single",
        "Which Python version does pyproject.toml ask for?",
        lambda o: o.says("3.12"),
        {"pyproject.toml": '[project]\nname = "tide"\nversion = "0.4.0"\nrequires-python = ">=3.12"\n'},
    ),
    Task(
        "read a yaml",
        "single",
        "How many replicas are configured in deploy.yaml?",
        lambda o: o.says("4") or o.says("four"),
        {"deploy.yaml": "kind: Deployment\nspec:\n  replicas: 4\n  image: web:1.9\n"},
    ),
    Task("an unnamed port", "single", "On which port does the server listen?", lambda o: o.says("4173"), _SERVER),
    Task(
        "an unnamed person",
        "single",
        "Who maintains this package?",
        lambda o: o.says("tomas berg"),
        {"package.json": '{\n  "name": "reef",\n  "maintainer": "Tomas Berg"\n}\n', "index.js": "exports.a = 1;\n"},
    ),
    Task(
        "files with a word",
        "single",
        "Which files mention the word harvest?",
        _mentions("may.txt", "june.txt", but_not=("april.txt", "july.txt")),
        _NOTES,
    ),
    Task("who calls it", "single", "Which file calls the function send_mail?", _mentions("signup.py"), _MAIL),
    Task("not there", "single", "Does any file here mention the word zebra? Answer yes or no.", _is_no, _NOTES),
    Task(
        "sum a column",
        "single",
        "What do the amounts in invoices.csv add up to?",
        lambda o: o.says("504"),
        {"invoices.csv": "id,amount\n1,119\n2,74\n3,263\n4,48\n"},
    ),
    Task(
        "count matches",
        "single",
        "How many lines of app.log contain the word error?",
        lambda o: o.says("4") or o.says("four"),
        {"app.log": _ERRORS},
    ),
    Task(
        "count a kind of file",
        "single",
        "How many Python files are in this project, subfolders included?",
        lambda o: o.says("3") or o.says("three"),
        {"main.py": "x = 1\n", "pkg/a.py": "", "pkg/deep/b.py": "", "pkg/readme.txt": "x\n", "run.sh": "echo\n"},
    ),
    Task(
        "the highest",
        "single",
        "What is the highest temperature in temps.txt?",
        lambda o: o.says("31"),
        {"temps.txt": "mon 19\ntue 24\nwed 31\nthu 27\nfri 22\n"},
    ),
    Task(
        "append a line",
        "single",
        "Append the line eggs to shopping.txt.",
        lambda o: o.text("shopping.txt").split("\n") == ["bread", "butter", "eggs"],
        {"shopping.txt": "bread\nbutter\n"},
    ),
    Task(
        "set a value",
        "single",
        "Set max_connections to 200 in db.conf.",
        lambda o: o.text("db.conf") == _CONF.replace("50", "200").strip(),
        {"db.conf": _CONF},
    ),
    Task(
        "fix a function",
        "two-step",
        "The function is_even in parity.py gives the wrong answer. Fix it.",
        _tells_even,
        {"parity.py": "def is_even(n):\n    return n % 2 == 1\n"},
    ),
    Task(
        "add an entry",
        "single",
        "Add requests to requirements.txt.",
        lambda o: sorted(o.text("requirements.txt").split()) == ["flask", "pytest", "requests"],
        {"requirements.txt": "flask\npytest\n"},
    ),
    Task(
        "rename a variable",
        "two-step",
        "In loop.py, rename the variable cnt to total.",
        lambda o: o.text("loop.py") == _LOOP.replace("cnt", "total").strip(),
        {"loop.py": _LOOP},
    ),
    Task(
        "write json",
        "single",
        "Create user.json, a JSON object with the name Lena and the age 34.",
        lambda o: _json_of(o, "user.json") == {"name": "Lena", "age": 34},
    ),
    Task(
        "count and write",
        "two-step",
        "Count the lines of access.log and write the number to count.txt.",
        lambda o: o.text("count.txt") == "23",
        {"access.log": "".join(f"GET /page/{number}\n" for number in range(23))},
    ),
    Task("a code", "talk", "What does the HTTP status code 404 mean?", lambda o: o.says("not found")),
    Task(
        "a verse",
        "talk",
        "Write a haiku about rain.",
        lambda o: len(o.answer.split()) >= 6 and _is_untouched(o),
    ),
)
