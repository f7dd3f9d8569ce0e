"""The tasks of the ability bench: small jobs in a folder, each with a check of its result.

Owns the tasks and their checks. A check looks at the folder where the task changes something, and at the answer where
the task asks something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["REPORTED", "TASKS", "Outcome", "Task"]


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    folder: Path
    answer: str

    def says(self, *texts: str) -> bool:
        """Whether the answer holds all of these, however they are spelled; a number is not a part of another."""
        answer = self.answer.lower().replace(",", "")
        return all(re.search(rf"(?<![0-9]){re.escape(text.lower())}(?![0-9])", answer) for text in texts)

    def text(self, path: str) -> str:
        """A file's text without the space around it; of a missing file, nothing."""
        try:
            return (self.folder / path).read_text().strip()
        except OSError:
            return ""

    def has(self, path: str) -> bool:
        return (self.folder / path).exists()


@dataclass(frozen=True)
class Task:
    """A prompt in a folder. `kind` is "single" for one tool call and an answer, else "two-step", "talk" or
    "reported"."""

    name: str
    kind: str
    prompt: str
    check: Callable[[Outcome], bool]
    files: Mapping[str, str] = field(default_factory=dict)


def _says(*texts: str) -> Callable[[Outcome], bool]:
    return lambda outcome: outcome.says(*texts)


def _lines(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


_SHAPES = (
    "def area(width, height):\n    return width * height\n\n\n"
    "def perimeter(width, height):\n    return 2 * (width + height)\n"
)
_INDEX = "<html>\n<head><title>Home</title></head>\n<body><h1>Hi</h1></body>\n</html>\n"
_LOG = "10:01 start\n10:02 listening on 8080\n10:07 ERROR disk full on /dev/sda1\n10:09 stop\n"
_PROJECT = {
    "src/dates.py": "import datetime\n\n\ndef parse_date(text):\n    return datetime.date.fromisoformat(text)\n",
    "src/users.py": "class User:\n    def __init__(self, name):\n        self.name = name\n",
    "src/main.py": "from users import User\n\n# TODO: read the name from a file\nprint(User('Ada').name)\n",
    "README.md": "# Project\n\nA small project by Grace Hopper.\n",
}

READING = (
    Task(
        "read an ini",
        "single",
        "What version is set in config.ini?",
        _says("3.7.2"),
        {"config.ini": "[app]\nname = demo\nversion = 3.7.2\n"},
    ),
    Task(
        "read a list",
        "single",
        "What is the first item in todo.txt?",
        _says("milk"),
        {"todo.txt": "buy milk\ncall Anna\nfix the roof\n"},
    ),
    Task(
        "read json",
        "single",
        "Which port does settings.json use?",
        _says("8443"),
        {"settings.json": '{\n  "host": "example.org",\n  "port": 8443\n}\n'},
    ),
    Task(
        "read the author",
        "single",
        "Who is the author of this project, according to README.md?",
        _says("grace hopper"),
        _PROJECT,
    ),
    Task(
        "read a table",
        "single",
        "How old is Bob, according to people.csv?",
        _says("42"),
        {"people.csv": "name,age\nAlice,31\nBob,42\nCarol,27\n"},
    ),
    Task(
        "read a deep file",
        "single",
        "What does src/app/greeting.txt say?",
        _says("good morning berlin"),
        {"src/app/greeting.txt": "Good morning Berlin\n", "src/app/other.txt": "nothing\n"},
    ),
    Task(
        "read an address",
        "single",
        "What is the e-mail address in contact.txt?",
        _says("mia@example.net"),
        {"contact.txt": "Mia Jensen\nHarbour Street 5\nmia@example.net\n"},
    ),
    Task(
        "read code",
        "single",
        "What does the function area in shapes.py return?",
        _says("width", "height"),
        {"shapes.py": _SHAPES},
    ),
    Task(
        "read a date",
        "single",
        "When is the meeting? See notes.md.",
        lambda o: o.says("12") and o.says("march"),
        {"notes.md": "# Notes\n\n- The meeting is on March 12 at noon.\n- Bring cake.\n"},
    ),
    Task(
        "read the license",
        "single",
        "Under which license is this project? Look in LICENSE.",
        _says("mit"),
        {"LICENSE": "MIT License\n\nCopyright (c) 2020 Someone\n", "main.py": "print(1)\n"},
    ),
)

FINDING = (
    Task(
        "find a word",
        "single",
        "Which file contains the word pineapple?",
        _says("c.txt"),
        {"a.txt": "apple\n", "b.txt": "pear\n", "c.txt": "a pineapple\n", "d.txt": "plum\n"},
    ),
    Task("find a function", "single", "In which file is the function parse_date defined?", _says("dates.py"), _PROJECT),
    Task("find a todo", "single", "Which file has a TODO comment?", _says("main.py"), _PROJECT),
    Task("find a class", "single", "Search for the class User. Which file is it in?", _says("users.py"), _PROJECT),
    Task("find an error", "single", "What went wrong, according to server.log?", _says("disk"), {"server.log": _LOG}),
    Task(
        "find a setting",
        "single",
        "Which file sets DATABASE_URL?",
        _says("env.sh"),
        {"env.sh": "export DATABASE_URL=postgres://db\n", "run.sh": "echo run\n", "conf/x.ini": "[x]\n"},
    ),
    Task(
        "find by extension",
        "single",
        "Which .json files are in this folder and its subfolders?",
        _says("one.json", "two.json"),
        {"one.json": "{}\n", "sub/two.json": "{}\n", "sub/three.txt": "x\n"},
    ),
)

COMPUTING = (
    Task("multiply", "single", "Use bash to compute 1234 * 5678.", _says("7006652")),
    Task("power", "single", "What is 2 to the power of 40? Use bash.", _says("1099511627776")),
    Task("count lines", "single", "How many lines does data.txt have?", _says("37"), {"data.txt": _lines(37)}),
    Task(
        "count files",
        "single",
        "How many files are in the folder logs?",
        lambda o: o.says("5") or o.says("five"),
        {f"logs/{name}.log": "x\n" for name in ("a", "b", "c", "d", "e")},
    ),
    Task(
        "count words",
        "single",
        "How many words does poem.txt have? Use wc.",
        _says("14"),
        {"poem.txt": "the sea is wide\nand the wind is cold\nbut my boat is small\n"},
    ),
    Task(
        "sum",
        "single",
        "What is the sum of the numbers in numbers.txt?",
        _says("148"),
        {"numbers.txt": "17\n23\n8\n100\n"},
    ),
    Task(
        "run a script",
        "single",
        "Run hello.py with python3 and tell me what it prints.",
        _says("number is 91"),
        {"hello.py": "print('the number is', 7 * 13)\n"},
    ),
    Task(
        "sort",
        "single",
        "Sort names.txt with bash. Which name comes first?",
        _says("aaron"),
        {"names.txt": "Mia\nZoe\nAaron\nLea\n"},
    ),
    Task(
        "largest file",
        "single",
        "Which file in this folder is the largest? Use ls -lS.",
        _says("big.txt"),
        {"small.txt": "x\n", "big.txt": "x" * 5000, "mid.txt": "x" * 300},
    ),
)

EDITING = (
    Task(
        "edit a port",
        "single",
        "Change the port in config.txt from 8080 to 9090.",
        lambda o: o.text("config.txt") == "host = localhost\nport = 9090\nmode = fast",
        {"config.txt": "host = localhost\nport = 8080\nmode = fast\n"},
    ),
    Task(
        "edit a word",
        "single",
        "In greet.py, replace Hello with Goodbye.",
        lambda o: o.text("greet.py") == 'print("Goodbye, world")',
        {"greet.py": 'print("Hello, world")\n'},
    ),
    Task(
        "edit a typo",
        "single",
        "Fix the spelling of recieve in notes.md.",
        lambda o: o.text("notes.md") == "We receive mail on Monday.",
        {"notes.md": "We recieve mail on Monday.\n"},
    ),
    Task(
        "edit a flag",
        "single",
        "Set debug to false in settings.ini.",
        lambda o: o.text("settings.ini").replace(" ", "") == "[app]\ndebug=false\nlevel=3",
        {"settings.ini": "[app]\ndebug = true\nlevel = 3\n"},
    ),
    Task(
        "edit a title",
        "single",
        "Change the title in index.html from Home to Welcome.",
        lambda o: o.text("index.html") == _INDEX.replace("Home", "Welcome").strip(),
        {"index.html": _INDEX},
    ),
    Task(
        "edit a version",
        "single",
        "Set the version in package.json to 2.0.0.",
        lambda o: '"version": "2.0.0"' in o.text("package.json") and '"name": "demo"' in o.text("package.json"),
        {"package.json": '{\n  "name": "demo",\n  "version": "1.4.1"\n}\n'},
    ),
)

MAKING = (
    Task(
        "write a text",
        "single",
        "Create a file hello.txt that contains: Hello World",
        lambda o: o.text("hello.txt") == "Hello World",
    ),
    Task(
        "write a function",
        "single",
        "Create add.py with a Python function add(a, b) that returns their sum.",
        lambda o: (
            re.search(r"def add\(a(: \w+)?, b(: \w+)?\).*:\s+.*return a \+ b", o.text("add.py"), re.S) is not None
        ),
    ),
    Task("make a folder", "single", "Make a new folder called reports.", lambda o: (o.folder / "reports").is_dir()),
    Task(
        "delete",
        "single",
        "Delete the file old.tmp.",
        lambda o: not o.has("old.tmp") and o.has("keep.txt"),
        {"old.tmp": "x\n", "keep.txt": "y\n"},
    ),
    Task(
        "rename",
        "single",
        "Rename draft.txt to final.txt.",
        lambda o: o.text("final.txt") == "my text" and not o.has("draft.txt"),
        {"draft.txt": "my text\n"},
    ),
    Task(
        "copy",
        "single",
        "Copy data.csv to backup.csv.",
        lambda o: o.text("backup.csv") == "a,b" and o.text("data.csv") == "a,b",
        {"data.csv": "a,b\n"},
    ),
    Task("list", "single", "Which files are in the folder src?", _says("dates.py", "users.py", "main.py"), _PROJECT),
    Task(
        "is it there",
        "single",
        "Is there a Makefile in this folder? Answer yes or no.",
        _says("yes"),
        {"Makefile": "all:\n\techo hi\n", "main.c": "int main() { return 0; }\n"},
    ),
)

STEPS = (
    Task(
        "double",
        "two-step",
        "Read the number in a.txt and write twice that number to b.txt.",
        lambda o: o.text("b.txt") == "42",
        {"a.txt": "21\n"},
    ),
    Task(
        "greet",
        "two-step",
        "Read the name in name.txt, then create greeting.txt that says: Hello, NAME",
        lambda o: o.text("greeting.txt").rstrip("!.") == "Hello, Ingrid",
        {"name.txt": "Ingrid\n"},
    ),
    Task(
        "add two files",
        "two-step",
        "What is the sum of the number in a.txt and the number in b.txt?",
        _says("59"),
        {"a.txt": "17\n", "b.txt": "42\n"},
    ),
    Task(
        "find and change",
        "two-step",
        "Find the file that sets timeout, and change its value to 60.",
        lambda o: o.text("conf/net.ini").replace(" ", "") == "[net]\ntimeout=60",
        {"conf/net.ini": "[net]\ntimeout = 30\n", "conf/ui.ini": "[ui]\ncolor = red\n"},
    ),
    Task(
        "run and keep",
        "two-step",
        "Run main.py with python3 and write its output to result.txt.",
        lambda o: o.text("result.txt") == "total 55",
        {"main.py": "print('total', sum(range(11)))\n"},
    ),
    Task(
        "compare",
        "two-step",
        "Which file has more lines, a.txt or b.txt?",
        lambda o: o.says("b.txt"),
        {"a.txt": _lines(12), "b.txt": _lines(19)},
    ),
    Task(
        "append and count",
        "two-step",
        "Add the line banana to the end of fruits.txt, then tell me how many lines it has.",
        lambda o: o.text("fruits.txt").split() == ["apple", "cherry", "banana"] and (o.says("3") or o.says("three")),
        {"fruits.txt": "apple\ncherry\n"},
    ),
    Task(
        "fix a bug",
        "two-step",
        "Running calc.py should print 5, but it does not. Fix calc.py.",
        lambda o: "a + b" in o.text("calc.py") and "a - b" not in o.text("calc.py"),
        {"calc.py": "def add(a, b):\n    return a - b\n\n\nprint(add(2, 3))\n"},
    ),
)

TALK = (
    Task("a fact", "talk", "What is the capital of France?", _says("paris")),
    Task("a greeting", "talk", "Hello!", lambda o: 0 < len(o.answer) < 400),
)

_BASKET = "item,price\ntea,14\nmilk,9\nrice,37\noil,52\n"
_LETTERS = {
    "mail/a.txt": "Your invoice is attached.\n",
    "mail/b.txt": "See you on Sunday.\n",
    "mail/old/c.txt": "The invoice of March was paid.\n",
    "mail/old/d.txt": "Greetings from the lake.\n",
}
_WEB = {
    "app/main.py": "from config import PORT\n\nserve(PORT)\n",
    "app/config.py": "HOST = '0.0.0.0'\nPORT = 8731\n",
    "README.md": "# Web app\n",
}
_WARNINGS = "1 INFO up\n2 WARN slow\n3 INFO ok\n4 WARN slow\n5 WARN disk\n6 ERROR disk\n7 WARN slow\n8 WARN cpu\n"

REPORTED = (
    # What went wrong for people with other tasks than those above.
    Task(
        "mend a function",
        "reported",
        "Fix `add` in mathutil.py.",
        lambda o: "a + b" in o.text("mathutil.py") and "a - b" not in o.text("mathutil.py"),
        {"mathutil.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return 2 * a\n"},
    ),
    Task(
        "total of prices",
        "reported",
        "What is the total of the prices in basket.csv?",
        _says("112"),
        {"basket.csv": _BASKET},
    ),
    Task(
        "holders of a word",
        "reported",
        "Which files contain the word invoice?",
        lambda o: o.says("a.txt", "c.txt") and "b.txt" not in o.answer and "d.txt" not in o.answer,
        _LETTERS,
    ),
    Task("guess a port", "reported", "Which port does the web app use?", _says("8731"), _WEB),
    Task(
        "a line at the end",
        "reported",
        "Add the line water the plants to the end of todo.txt.",
        lambda o: o.text("todo.txt").split("\n") == ["call Anna", "fix the roof", "water the plants"],
        {"todo.txt": "call Anna\nfix the roof\n"},
    ),
    Task(
        "a word nobody says",
        "reported",
        "Is the word unicorn in any of these files?",
        lambda o: re.search(r"\b(no|not|none)\b", o.answer.lower()) is not None,
        _LETTERS,
    ),
    Task("lines that warn", "reported", "How many lines of run.log say WARN?", _says("5"), {"run.log": _WARNINGS}),
    Task(
        "throughout a file",
        "reported",
        "Replace colour with color everywhere in style.txt.",
        lambda o: o.text("style.txt") == "color: red\nline-color: blue\nno color at all",
        {"style.txt": "colour: red\nline-colour: blue\nno colour at all\n"},
    ),
)

TASKS: tuple[Task, ...] = (*READING, *FINDING, *COMPUTING, *EDITING, *MAKING, *STEPS, *TALK)
