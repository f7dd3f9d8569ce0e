"""The requirements of the schemas for JUnit's XML, in terms of the strictest one, that of Ant's task.

testsuites   testsuite*
testsuite    properties, testcase*, system-out, system-err
testcase     (error | failure)?
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

TOKEN = r"\S(?:[^\n\r\t]*\S)?"
INTEGER, DECIMAL = r"\d+", r"-?\d+(?:\.\d+)?"
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
ANY = r"[\s\S]*"

ATTRIBUTES = {
    "testsuites": {},
    "testsuite": {
        "id": INTEGER,
        "package": TOKEN,
        "name": TOKEN,
        "timestamp": MOMENT,
        "hostname": TOKEN,
        "tests": INTEGER,
        "failures": INTEGER,
        "errors": INTEGER,
        "time": DECIMAL,
    },
    "properties": {},
    "property": {"name": TOKEN, "value": ANY},
    "testcase": {"name": TOKEN, "classname": TOKEN, "time": DECIMAL},
    "error": {"message": ANY, "type": r"[\s\S]+"},
    "failure": {"message": ANY, "type": r"[\s\S]+"},
    "system-out": {},
    "system-err": {},
}
CHILDREN = {
    "testsuites": "(testsuite )*",
    "testsuite": "properties (testcase )*system-out system-err ",
    "properties": "(property )*",
    "testcase": "(error |failure )?",
}
TEXT = {"error", "failure", "system-out", "system-err"}


def checked(document: str) -> ElementTree.Element:
    """The document's root, if it is valid. Raises `AssertionError` that says where it is not."""
    root = ElementTree.fromstring(document.encode("utf-8"))
    assert root.tag == "testsuites"
    for element in root.iter():
        wanted = ATTRIBUTES[element.tag]
        assert element.attrib.keys() == wanted.keys(), f"<{element.tag}> has {list(element.attrib)}"
        for name, pattern in wanted.items():
            assert re.fullmatch(pattern, element.attrib[name]), f"<{element.tag} {name}={element.attrib[name]!r}>"
        order = "".join([f"{child.tag} " for child in element])
        assert re.fullmatch(CHILDREN.get(element.tag, ""), order), f"<{element.tag}> holds {order}"
        if element.tag not in TEXT:
            assert not (element.text or "").strip(), f"<{element.tag}> says {element.text!r}"
        assert not (element.tail or "").strip()
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
    return root
