"""Deciding: predicates and subject patterns, on one core and without a store."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.result import Result, compare
from benchmarks.workload import REPETITIONS
from tape.model.subject import parse_pattern
from tape.model.subject_trie import SubjectTrie
from tape.predicates import check

EVALUATIONS = 200_000
SUBJECTS = 50_000
PATTERNS = 1_000

_PRICE: dict[str, Any] = {
    "payload": {"symbol": "BTCUSDT", "price": 101.5, "volume": 3},
    "kind": "event",
}
_VALUE: dict[str, Any] = {
    "payload": {"value": {"value_json": "101.5", "version": 2}, "prev_version": 1},
    "prev_value_json": "99.5",
    "kind": "value",
}
Envelope = dict[str, Any]
CASES: list[tuple[str, Envelope, Callable[[Envelope], bool]]] = [
    (
        'payload.price > 100.0 && payload.symbol == "BTCUSDT"',
        _PRICE,
        lambda e: bool(e["payload"]["price"] > 100.0 and e["payload"]["symbol"] == "BTCUSDT"),
    ),
    (
        "payload.value.value_json != prev_value_json && double(payload.value.value_json) > 100.0",
        _VALUE,
        lambda e: (
            e["payload"]["value"]["value_json"] != e["prev_value_json"]
            and float(e["payload"]["value"]["value_json"]) > 100.0
        ),
    ),
]


def run() -> Iterator[Result]:
    for expression, envelope, by_hand in CASES:
        evaluate = check(expression).evaluate
        ours = [_rate(evaluate, envelope) for _ in range(REPETITIONS)]
        theirs = [_rate(by_hand, envelope) for _ in range(REPETITIONS)]
        yield compare(
            f"predicate {expression[:32]}…", "evaluations/s", ours, "hand-written lambda", theirs,
            n=EVALUATIONS, at_least=1_000_000, absolute=True,
        )  # fmt: skip
    yield _patterns()


def _rate(evaluate: Callable[[Envelope], bool], envelope: Envelope) -> float:
    started = time.perf_counter()
    for _ in range(EVALUATIONS):
        evaluate(envelope)
    return EVALUATIONS / (time.perf_counter() - started)


def _patterns() -> Result:
    """Every subject is new, so no cache could help."""
    shapes = (
        "/tape/effect/confirmed/tool{0}/*",
        "/tape/value/changed/ns{0}/**",
        "/tape/event/recorded/type{0}/*/**",
        "/tape/decision/recorded/*/{0}",
    )
    patterns = [
        parse_pattern(shapes[i % len(shapes)].format(i // len(shapes))) for i in range(PATTERNS)
    ]
    trie: SubjectTrie[int] = SubjectTrie()
    for index, pattern in enumerate(patterns):
        trie.add(pattern, index)
    subjects = [f"/tape/event/recorded/type{i % 250}/asset/{i}" for i in range(SUBJECTS)]
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        for subject in subjects:
            trie.match(subject)
        ours.append(SUBJECTS / (time.perf_counter() - started))
        few = subjects[:500]
        started = time.perf_counter()
        for subject in few:
            [i for i, pattern in enumerate(patterns) if pattern.matches(subject)]
        theirs.append(len(few) / (time.perf_counter() - started))
    return compare(
        "subject against 1,000 patterns", "subjects/s", ours, "each pattern in turn", theirs,
        n=SUBJECTS, at_least=200_000, absolute=True,
    )  # fmt: skip
