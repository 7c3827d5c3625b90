"""Expressions and entries to compare engines with, from a seed.

Payloads are written as JSON text, so that equal keys, escapes and odd numbers reach each engine as
they would from a producer. Expressions are of forms that a Column decides and of forms that only
Python does, and mixed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from tape.model.entry import Entry

TEXTS = [
    *("", "a", "b", "ab", "aab", "1", "2", "1.5", "-0", " 1", "1d", "0x10", "1_0", "NaN", "-inf"),
    *("1e400", "true", "false", "null", "{}", "[]", "é", "😀", "z😀", "\uffff", "a\x00", "\ue000"),
    *("u0000", "'", '"', "9223372036854775808"),
]
KEYS = ["a", "b", "c", "é", "😀", "", "a.b", "a'b", 'a"b', "a\x00", "[0]", "\ue000"]
NUMBERS = """
    0 -0 1 -1 2 3 100 0.0 -0.0 -0e0 1.0 2.0 1.5 -1.5 100.0 99.99999999999999 1e2 1E+2 1e0
    9007199254740991 9007199254740992 9007199254740993 9007199254740993.0 -9007199254740993
    9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
    18446744073709551615 18446744073709551616 1e300 -1e300 1.7976931348623157e308 5e-324 1e-400000
    0.1 0.30000000000000004 0.1000000000000000055511151231257827 123456789012345678901234567890
    99999999999999999999999999999999999999 999999999999999999999999999999999999999
    0.333333333333333333333333333333333333333333333333333
""".split()  # noqa: SIM905 - a list literal would take forty lines
INTS = "0 1 2 3 -1 100 9007199254740992 9007199254740993 9223372036854775807".split()  # noqa: SIM905
DOUBLES = "0.0 1.0 1.5 2.0 100.0 -1.0 9007199254740992.0 0.1 1e300 -0.0".split()  # noqa: SIM905
LITERALS = ["true", "false", "null"]
INT_COLUMNS = ["global_seq", "seq", "ts_ms", "schema_version"]
EVENT_COLUMNS = [
    *("event_id", "event_type", "entity_type", "entity_id", "source", "caused_by"),
    "idempotency_key",
]
TEXT_COLUMNS = ["run_id", "kind", "subject", "trace_id", *EVENT_COLUMNS]
ORDERINGS = ["<", "<=", ">", ">="]
COMPARISONS = ["==", "!=", *ORDERINGS]


def quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def an_entry(number: int, payload_json: str, kind: str = "event") -> Entry:
    return Entry(
        global_seq=number,
        run_id="",
        seq=0,
        kind=kind,
        subject="/tape/event/recorded/a/b/c",
        payload_json=payload_json,
        schema_version=1,
        trace_id="",
        span_id="",
        parent_span_id="",
        ts_ms=1,
        event_id=f"{number:026}",
        event_type="",
        entity_type="",
        entity_id="",
        caused_by="",
        source="",
        occurred_at_ms=0,
        idempotency_key="",
    )


@dataclass
class Entries:
    random: Random

    def entry(self, number: int) -> Entry:
        pick = self.random.choice
        kind = pick(["value", "effect", "event"])
        run_id = pick(["", "a", "run-1", "é😀"])
        fields: dict[str, Any] = {name: pick(["", "a", "1.5", "é😀"]) for name in EVENT_COLUMNS[1:]}
        return an_entry(number, self._payload(kind), kind)._replace(
            run_id=run_id,
            seq=self.random.randint(1, 3) if run_id else 0,
            subject=pick(["/tape/value/changed/a/b", "/tape/effect/é", "/tape/😀", "a", "1.5"]),
            schema_version=self.random.randint(1, 3),
            trace_id=pick(["", "t", "a"]),
            ts_ms=pick([0, 1, 100, 9007199254740992, 9007199254740993, 2**63 - 1]),
            **fields,
        )

    def _payload(self, kind: str) -> str:
        members = [(key, self._json(2)) for key in "abc" if self.random.random() < 0.97]
        members += [
            (self.random.choice(KEYS), self._json(1)) for _ in range(self.random.randint(0, 3))
        ]
        self.random.shuffle(members)
        if kind == "value":
            members.append(("prev_value_json", quoted(self.random.choice(TEXTS))))
        elif self.random.random() < 0.06:
            return self._json(1)
        return self._object(members)

    def _object(self, members: list[tuple[str, str]]) -> str:
        return "{" + ", ".join(f"{self._text(key)} : {value}" for key, value in members) + "}"

    def _json(self, depth: int) -> str:
        roll = self.random.random()
        if depth and roll < 0.18:
            return (
                "["
                + ",".join(self._json(depth - 1) for _ in range(self.random.randint(0, 4)))
                + "]"
            )
        if depth and roll < 0.28:
            count = self.random.randint(0, 4)
            return self._object(
                [(self.random.choice(KEYS[:4]), self._json(depth - 1)) for _ in range(count)]
            )
        if roll < 0.62:
            return self.random.choice(NUMBERS)
        return (
            self._text(self.random.choice(TEXTS)) if roll < 0.88 else self.random.choice(LITERALS)
        )

    def _text(self, text: str) -> str:
        if self.random.random() < 0.8:
            return quoted(text)
        units = text.encode("utf-16-be")
        return '"' + "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)) + '"'


def plain_entries() -> list[str]:
    """Payloads that have each of the texts and numbers at `a`, beside another at `b`."""
    scalars = [*map(quoted, TEXTS), *NUMBERS, *LITERALS, "[1, 2.0, null]", '{"a": "b"}']
    shifted = [*scalars[5:], *scalars[:5]]
    pairs = zip(scalars, shifted, strict=True)
    return [f'{{"a": {one}, "b": {other}, "c": [{one}, {other}]}}' for one, other in pairs]


EVERY_RULE = [
    *(f"{name} == 'a' || {name} > 'b'" for name in EVENT_COLUMNS),
    *(f"payload.a == {name} && {name} != ''" for name in EVENT_COLUMNS),
    f"({' + '.join(EVENT_COLUMNS)}).matches('a1')",
    "event_type + '/' + entity_id in ['a/', 'a/a'] || source.startsWith(caused_by)",
    "double(payload.a) > 5.0",
    "double(payload.a) == double(payload.a)",
    "!(5.0 < double(payload.a))",
    "double(payload.a) <= double(payload.b)",
    "double(payload.a) in [1.5, 2.0]",
    "double(payload.a) - double(payload.b) >= 0.0",
    "-double(payload.a) < 1.0",
    "double(payload.a) * double(payload.b) != 0.0",
    "int(payload.a) >= 1",
    "int(payload.a) % 2 == 1",
    "payload.a == 9007199254740993",
    "payload.a < payload.b",
    "payload.a >= payload.b",
    "payload.a == '2' || payload.a == 2",
    "payload.a == true",
    "payload.a == null",
    "payload.a",
    "has(payload.a.a)",
    "!has(payload.z)",
    "size(payload.a) == 1",
    "size(payload.c) == 2",
    "payload.c.exists(x, x == 2)",
    "payload.c.all(x, x > 1)",
    "payload.c.exists_one(x, x == 'a')",
    "payload.a in ['a', '1', 'true']",
    "2 in payload.c",
    "'a' in payload.a",
    "payload.a.contains('a')",
    "payload.a + 'a' == 'aa'",
    "payload.a > 'a'",
    "payload.a < global_seq",
    "payload.a <= ts_ms",
    "payload.c.exists(x, payload.a == 1)",
    "payload.a < true",
    "(payload.b == 2 ? payload.a : payload.c[0]) == 1",
]


@dataclass
class Expressions:
    random: Random
    deep: int = 2
    _item: str = field(default="", init=False)

    def expression(self) -> str:
        return self._bool(self.random.choice([0, 0, 1, 1, 2, self.deep]))

    def _bool(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.1:
            return self.random.choice(self._tests)()
        one, other, third = (self._bool(depth - 1) for _ in range(3))
        return self.random.choice(
            [
                f"({one} && {other})",
                f"({one} || {other})",
                f"!({one})",
                f"({one} ? {other} : {third})",
                f"({one} && {other} && {third})",
            ]
        )

    @property
    def _tests(self) -> list[Callable[[], str]]:
        return [
            self._compared_path,
            self._compared_path,
            self._compared_path,
            self._compared_dyn,
            self._columns,
            self._columns,
            self._member,
            self._has,
            self._text_test,
            self._macro,
            self._path,
            self._within,
            self._paths,
            self._previous,
        ]

    def _pick(self, *options: str) -> str:
        return self.random.choice(options)

    def _path(self) -> str:
        root = self._item if self._item and self.random.random() < 0.8 else "payload"
        first = "" if root == self._item else self._pick(".a", ".b", ".c", self._step())
        return root + first + (self._step() if self.random.random() < 0.2 else "")

    def _step(self) -> str:
        key = self.random.choice(KEYS)
        return self._pick(".a", ".b", ".c", f"[{quoted(key)}]", "[0]", "[1]", "['a']")

    def _literal(self) -> str:
        return self._pick(
            self._number(), self._number(), quoted(self.random.choice(TEXTS)), *LITERALS[:2], "null"
        )

    def _number(self) -> str:
        return self.random.choice([*INTS, *DOUBLES, "2u"])

    def _compared_path(self) -> str:
        comparison, literal = self._pick(*COMPARISONS), f"dyn({self._literal()})"
        path = self._path()
        return (
            f"{path} {comparison} {literal}"
            if self.random.random() < 0.8
            else f"{literal} {comparison} {path}"
        )

    def _paths(self) -> str:
        return f"{self._path()} {self._pick(*COMPARISONS)} {self._path()}"

    def _columns(self) -> str:
        text, number = self._pick(*TEXT_COLUMNS), self._pick(*INT_COLUMNS)
        path, comparison = self._path(), self._pick(*COMPARISONS)
        return self._pick(
            f"{text} {comparison} {quoted(self._pick('value', 'a', 'é', '😀', ''))}",
            f"{text} {comparison} {self._pick(*TEXT_COLUMNS)}",
            f"{number} {comparison} {self._pick(*INTS)}",
            f"{number} {self._pick(*'+-*/%')} {self._pick(*INTS)} {comparison} {self._pick(*INTS)}",
            f"{path} {comparison} {text}",
            f"{path} {comparison} {number}",
            f"{number} {comparison} {path}",
            f"double({number}) {self._pick(*'+-*')} {self._pick(*DOUBLES)} {comparison} {path}",
            f"{text} in ['a', 'value', 'run-1']",
            f"{number} in [1, 2, 100]",
            f"size({text}) {comparison} {self._pick('0', '1', '5')}",
            f"{text} + 'a' {comparison} {path}",
        )

    def _dyn(self) -> str:
        path, other = self._path(), self._path()
        return self._pick(
            path,
            f"dyn({self._literal()})",
            f"double({path})",
            f"double({path}) * double({other})",
            f"(double({path}) - double({other}))",
            f"int({path})",
            f"int(double({path}))",
            f"size({path})",
            f"({path} + 'a')",
            f"({path} + dyn({self._number()}))",
            f"(-{path})",
            f"string({path})",
            f"({self._bool(0)} ? {path} : {other})",
            f"({path} / dyn({self._number()}))",
            f"type({path})",
            f"(-double({path}))",
            f"size(string({path}))",
            f"{path}[{other}]",
        )

    def _compared_dyn(self) -> str:
        other = self._pick(self._dyn(), f"dyn({self._literal()})")
        return f"{self._dyn()} {self._pick(*COMPARISONS)} {other}"

    def _member(self) -> str:
        texts = ", ".join(quoted(self.random.choice(TEXTS)) for _ in range(3))
        mixed = ", ".join(f"dyn({self._literal()})" for _ in range(3))
        return f"{self._path()} in [{self._pick(texts, texts, mixed, '1, 2, 100', self._path())}]"

    def _within(self) -> str:
        value = self._pick(f"dyn({self._literal()})", self._pick(*TEXT_COLUMNS), self._path())
        return f"{value} in {self._path()}"

    def _has(self) -> str:
        return (
            f"has({self._pick('payload', self._path(), self._path())}.{self._pick('a', 'b', 'c')})"
        )

    def _text_test(self) -> str:
        subject = self._pick(self._path(), self._path(), *TEXT_COLUMNS)
        test = self._pick("startsWith", "endsWith", "contains", "matches")
        part = self._pick("''", "'a'", "'b'", "'1'", "'😀'", "'/tape/'", "kind", self._path())
        return f"{subject}.{test}({part})"

    def _previous(self) -> str:
        return self._pick(
            f"prev_value_json {self._pick(*COMPARISONS)} {self._path()}",
            "double(prev_value_json) > 1.0",
            "prev_value_json.contains('a')",
            "size(prev_value_json) == 1",
        )

    def _macro(self) -> str:
        if self._item:
            return self._compared_path()
        over, macro = self._path(), self._pick("all", "exists", "exists", "exists_one")
        self._item = "x"
        body = self._bool(self.random.randint(0, 1))
        self._item = ""
        return self._pick(
            f"{over}.{macro}(x, {body})",
            f"{over}.{macro}(x, {body})",
            f"size({over}.filter(x, {body})) > 0",
        )
