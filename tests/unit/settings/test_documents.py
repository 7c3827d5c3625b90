"""Documents in YAML and JSON: what a value is, where it stands, what is refused and where."""

import contextlib
import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.settings.located import LocatedDocument, read_located
from tape.settings.yaml_nodes import FILE_RULES, DocumentRules

RULES = DocumentRules(most_bytes=64 * 1024, most_depth=8)


def read(text: str, rules: DocumentRules = RULES) -> LocatedDocument:
    return read_located(text, rules, field="document")


def value(text: str) -> Any:
    return read(f"a: {text}").value["a"]


def refused(text: str, rules: DocumentRules = RULES) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read(text, rules)
    return caught.value


@pytest.mark.parametrize(
    "word",
    ["off", "on", "yes", "no", "y", "n", "Off", "NO", "Yes", "tRUE", "1:30", "1_000", "0b1",
     "2024-01-01", "2024-01-01T10:00:00Z", "<<", "=", "nan", "inf", "1e", "0x", "0o8", "1.2.3",
     "+", ".", "--1", "nUll"],
)  # fmt: skip
def test_what_only_yaml_1_1_takes_for_more_is_a_text(word: str) -> None:
    assert value(word) == word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True), ("False", False), ("TRUE", True), ("null", None), ("~", None), ("", None),
        ("'true'", "true"), ('"5"', "5"), ("010", 10), ("-7", -7), ("+7", 7), ("0x1F", 31),
        ("0o17", 15), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("-2.", -2.0), (".inf", math.inf),
        ("-.INF", -math.inf), (str(2**63), 2**63), ("|\n  two\n  lines", "two\nlines"),
        ("'é ✓'", "é ✓"), ('"\\u00e9"', "é"),
    ],
)  # fmt: skip
def test_the_core_schema_of_yaml_1_2(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_not_a_number() -> None:
    assert math.isnan(value(".nan"))


def test_keys_are_texts() -> None:
    assert read("{yes: 1, 5: 2, true: 3, 1.5: 4, ~: 5}").value == {
        "yes": 1, "5": 2, "true": 3, "1.5": 4, "~": 5,
    }  # fmt: skip


def test_the_line_of_each_value() -> None:
    document = read(
        "# a comment\n"
        "spec:\n"  # 2
        "  source: nats\n"
        "  headers:\n"  # 4
        "    directives:\n"
        "      - header: a\n"  # 6
        "        allowed: [x,\n"
        "                  y]\n"  # 8
        "      - {header: b}\n"
        "  note: >\n"  # 10
        "    folded\n"
    )
    lines = {
        (): 2,
        ("spec",): 2,
        ("spec", "source"): 3,
        ("spec", "headers"): 4,
        ("spec", "headers", "directives"): 5,
        ("spec", "headers", "directives", 0): 6,
        ("spec", "headers", "directives", 0, "header"): 6,
        ("spec", "headers", "directives", 0, "allowed"): 7,
        ("spec", "headers", "directives", 0, "allowed", 0): 7,
        ("spec", "headers", "directives", 0, "allowed", 1): 8,
        ("spec", "headers", "directives", 1): 9,
        ("spec", "headers", "directives", 1, "header"): 9,
        ("spec", "note"): 10,
    }
    assert document.lines == lines
    assert document.line(("spec", "headers", "directives", 1, "controls")) == 9, "the block's"
    assert document.line(("nothing", "here")) == 2


def test_the_lines_of_json() -> None:
    text = json.dumps({"a": {"b": [1, {"c": "two\nlines"}]}, "d": 1.5}, indent=1)
    document = read(text)
    assert document.value == json.loads(text)
    assert document.lines == {
        (): 1,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 4,
        ("a", "b", 1): 5,
        ("a", "b", 1, "c"): 6,
        ("d",): 10,
    }


def test_json_that_yaml_parsers_stumble_over() -> None:
    assert read('{\t"a"\t:\t"\\ud83d\\ude00 \\/"}').value == {"a": "😀 /"}
    assert read('{"' + "k" * 2000 + '":1}').value == {"k" * 2000: 1}


REFUSED = [
    ("a: 1\nb: 2\na: 3", "a", 3, "is listed twice; remove one (line 3)"),
    ("a: {b: 1, 'b': 2}", "a.b", 1, "is listed twice"),
    ('{"a": 1,\n "a": 2}', "a", 2, "is listed twice"),
    ("a: [{b: {1: x, '1': y}}]", "a[0].b.1", 1, "is listed twice"),
    ("a: &x 1", "document", 1, "is not YAML: line 1, column 4: anchors are not allowed"),
    ("a: 1\nb: *x", "document", 2, "aliases are not allowed; write the value out"),
    ("a: !!str 5", "document", 1, "tags are not allowed; leave it out"),
    ("a: !mine {}", "document", 1, "tags are not allowed"),
    ("a: ! 5", "document", 1, "tags are not allowed"),
    ("? [a]\n: 1", "document", 1, "a list is not a key; a key is a text"),
    ("a: {{b: 1}: 2}", "a", 1, "a mapping is not a key"),
    ("a: 1\n---\na: 2", "document", 2, "but found another document"),
    ("a: {", "document", 1, "is not YAML: line 1, column 5: while parsing a flow node"),
    ("a: 1\nb: \x07", "document", 2, "is not YAML: line 2: unacceptable character #x0007"),
    ('{"a": 1,\n "b" 2}', "document", 2, "is not JSON: line 2, column 6: "),
    ("a: " + "[" * 3000, "document", 1, "it is nested too deeply, 8 levels are allowed"),
    ('{"a":' * 9 + "1" + "}" * 9, "document", 1, "it is nested too deeply"),
    ("- " * 9 + "x", "document", 1, "it is nested too deeply"),
    ("? " * 9 + "x", "document", 1, "it is nested too deeply"),
    ("a: 1\nb: 99999999999999999999", "b", 2, "99999999999999999999 is no number of 64 bits"),
    ("a: " + "9" * 60_000, "a", 1, "9… is no number of 64 bits"),
    ("a: 1e999", "a", 1, "1e999 is no number of 64 bits"),
    ('{"a": 1e999}', "a", 1, "1e999 is no number of 64 bits"),
    ('a: "\\ud800"', "a", 1, "a lone surrogate is not text"),
    ('"\\ud800": 1', "document", 1, "a lone surrogate is not text"),
    ('a: "\\U00110000"', "document", None, "is not YAML: "),
    ("a: 1\nb: \ud800", "document", 2, "a lone surrogate is not text"),
    ("%YAML " + "9" * 5000 + ".1\n---\na: 1", "document", None, "is not YAML: "),
]


@pytest.mark.parametrize(
    ("text", "field", "line", "says"), REFUSED, ids=[ascii(text[:30]) for text, *_ in REFUSED]
)
def test_what_is_refused(text: str, field: str, line: int | None, says: str) -> None:
    fault = refused(text)
    assert (fault.field, fault.line) == (field, line)
    assert says in str(fault)


def test_a_long_key_is_shortened_in_what_is_said() -> None:
    fault = refused("k" * 500 + ": {b: 1, b: 2}")
    assert fault.field == "k" * 40 + "….b"


def test_size_is_counted_in_bytes() -> None:
    rules = DocumentRules(most_bytes=10)
    assert read("a: ééé", rules).value == {"a": "ééé"}
    fault = refused("a: éééé", rules)
    assert isinstance(fault, TooLarge)
    assert "11 bytes, the limit is 10" in str(fault)


def test_nothing_is_nothing() -> None:
    assert read("").value is None
    assert read("# nothing\n").value is None
    assert read("").line(("a",)) is None


def test_aliases_where_they_are_allowed() -> None:
    document = read("a: &x {b: 1}\nc: *x\nd: !!str 5\ne: [*x]", FILE_RULES)
    assert document.value == {"a": {"b": 1}, "c": {"b": 1}, "d": "5", "e": [{"b": 1}]}


def test_aliases_of_aliases_take_no_time() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 60)]
    document = read("l0: &l0 [x]\n" + "\n".join(levels), DocumentRules(10**6, 200, aliases=True))
    assert len(document.value["l59"]) == 9


def test_an_alias_within_itself() -> None:
    fault = refused("a: &x [1, *x]", FILE_RULES)
    assert fault.field == "a[1]"
    assert "holds itself" in str(fault)


def test_an_unknown_tag_where_tags_are_allowed() -> None:
    assert "the tag !mine is not known" in str(refused("a: !mine 5", FILE_RULES))
    assert "is no number" in str(refused("a: !!int five", FILE_RULES))


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(
    allow_nan=False, allow_infinity=False
) | st.text(st.characters(codec="utf-8"), max_size=20)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
DEEP = DocumentRules(most_bytes=10**6, most_depth=200)


@given(document=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), VALUES))
def test_json_is_read_as_the_standard_library_reads_it(document: dict[str, Any]) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=2)):
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return
        assert read(text, DEEP).value == document


@given(document=st.dictionaries(st.text(min_size=1, max_size=8), VALUES, min_size=1))
def test_what_yaml_writes_is_read_back(document: dict[str, Any]) -> None:
    """A writer of YAML 1.1 quotes whatever is more than a text in either version."""
    try:
        text = yaml.safe_dump(document, allow_unicode=True, default_style='"')
        json.dumps(document, ensure_ascii=False).encode()
    except (UnicodeEncodeError, yaml.YAMLError):
        return
    # In this style numbers have tags, which say their type.
    assert read(text, DocumentRules(10**6, 200, aliases=True)).value == document


@given(
    text=st.text(st.characters(), max_size=60) | st.text("{}[]:,-&*!|>'\"#%@` \n\ta1?", max_size=60)
)
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    with contextlib.suppress(InvalidArgument):
        read(text)
