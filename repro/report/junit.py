"""The gate's answer as JUnit XML, for CI services: a test for each cell, with the same name on every release."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from repro.gate import Gate, Word
from repro.results import on

# What XML 1.0 cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate(answer: Gate) -> str:
    """A red cell is a failure; one that did not run, or says nothing, is an error."""
    errors = [change for change in answer.changes if change.word in (Word.LOST, Word.INCONCLUSIVE)]
    suite = ElementTree.Element(
        "testsuite",
        name=f"gate{on(answer.device)}",
        tests=str(len(answer.changes)),
        failures=str(len(answer.red) - len(errors)),
        errors=str(len(errors)),
        skipped="0",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("torch", answer.torch), ("python", answer.python), ("against", answer.against)):
        ElementTree.SubElement(properties, "property", name=name, value=_plain(value))
    for change in answer.changes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"gate.{change.race}{on(answer.device)}", name=change.fix
        )
        if change.red:
            kind = "error" if change in errors else "failure"
            found = ElementTree.SubElement(case, kind, type=str(change.word), message=_plain(change.text))
            found.text = change.upstream
    if answer.notes or answer.meaning:
        ElementTree.SubElement(suite, "system-out").text = _plain("\n".join([*answer.notes, *answer.meaning]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
