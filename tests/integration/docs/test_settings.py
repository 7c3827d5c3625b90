"""The tables of settings say what the code says."""

import inspect
import re

import tape
from tape.reactions.work import handler_envelope
from tests.integration.docs.pages import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| `([^`]*)` \|", re.MULTILINE)


def test_settings_of_a_reaction() -> None:
    page = (ROOT / "docs/reactions.md").read_text()
    parameters = inspect.signature(tape.on).parameters
    wanted = {
        name: repr(parameter.default)
        for name, parameter in parameters.items()
        if name != "subject_pattern"
    }
    assert dict(_ROW.findall(page)) == wanted


def test_the_envelope_of_a_handler() -> None:
    page = (ROOT / "docs/reactions.md").read_text()
    table = page[page.index("| key | what |") :].split("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row)}
    kinds = tape.Entry.__annotations__.values()
    entry = tape.Entry._make(1 if kind is int else "" for kind in kinds)._replace(payload_json="1")
    task = tape.Task("r/0/1", "r", 0, 1, 2, 1, 0, "", 0, 0, "", 0, 0, entry)
    assert named - {"prev_value_json"} == {*handler_envelope(task)} - {"prev_value_json"}
