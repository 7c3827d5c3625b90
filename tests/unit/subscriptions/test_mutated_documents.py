"""Documents that were changed at random are read, or refused by InvalidArgument."""

import copy
import json
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.subscriptions.spec import CheckedDocument, read_document, spec_of_json
from tests.unit.subscriptions.documents import WORKING

TEXTS = list(WORKING.values())
VALUES = [orjson.loads(read_document(text).canonical_json) for text in TEXTS]
CUTS = st.text("{}[]:,-&*!|>'\"#%@`?~ \n\tax1.\\", max_size=8) | st.text(max_size=4)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, -1, 1.5, 2**63, 10**30, 1e300, "", " ", "off", "yes", "\0", "x" * 600,
     "a\nb", "é", "\ud800", "payload.", "[", "*", "../..", [], {}, [[]], {"": ""}, [None]]
)  # fmt: skip


def outcome(text: str) -> CheckedDocument | InvalidArgument:
    try:
        return read_document(text)
    except InvalidArgument as fault:
        return fault


def holds(found: CheckedDocument | InvalidArgument) -> None:
    if isinstance(found, CheckedDocument):
        assert spec_of_json(found.canonical_json) == found.spec
        assert read_document(found.canonical_json) == found
    else:
        assert found.field
        assert "\n" not in str(found)
        str(found).encode()  # what is said can be sent


@settings(max_examples=300)
@given(data=st.data(), text=st.sampled_from(TEXTS))
def test_texts_with_something_else_in_them(data: st.DataObject, text: str) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(CUTS) + text[end:]
    holds(outcome(text))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


@settings(max_examples=300)
@given(data=st.data(), number=st.integers(0, len(VALUES) - 1))
def test_values_in_the_wrong_place(data: st.DataObject, number: int) -> None:
    document = copy.deepcopy(VALUES[number])
    others = places(VALUES[data.draw(st.integers(0, len(VALUES) - 1))])
    for _ in range(data.draw(st.integers(1, 2))):
        *above, last = data.draw(st.sampled_from(places(document)))
        block = document
        for step in above:
            block = block[step]
        if isinstance(block, dict) and data.draw(st.booleans()):
            del block[last]
        elif isinstance(block, dict) and data.draw(st.booleans()):
            block[str(data.draw(st.sampled_from(others))[-1])] = copy.deepcopy(data.draw(ODD))
        else:
            block[last] = copy.deepcopy(data.draw(ODD))
        if not places(document):
            break
    holds(outcome(_json(document)))


def _json(document: Any) -> str:
    """As Python's own writer has it: with lone surrogates and long numbers, as anybody may send."""
    return json.dumps(document)


def test_the_slowest_that_fit() -> None:
    """All of them within the time that a test has; what goes by the square of a text takes longer
    for one."""
    size = 64 * 1024
    spec = WORKING["events"].partition("  headers:")[0]
    for text in (
        "[" * size,
        "{" * size,
        "- " * (size // 2),
        '{"a":' * (size // 5),
        '{"a":[' + "1," * (size // 2 - 8) + "1]}",
        "a: [" + "1," * (size // 2 - 8) + "]",
        "a: " + "1" * (size - 10) + "x",
        "\n".join(f"k{number}: 1" for number in range(6_000)),
        spec + "  headers: {directives: [" + "{header: a, x: }," * 3_000 + "]}\n",
        spec + "  dedup: {window_secs: 1, key: '" + "(" * 2_000 + "a" + ")" * 2_000 + "'}\n",
        spec + "  spool: {mode: off, downstreams: ["
        + ",".join(f"{{name: a{number}}}" for number in range(3_500)) + "]}\n",
    ):  # fmt: skip
        assert len(text) <= size
        holds(outcome(text))
