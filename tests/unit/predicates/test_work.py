"""What is charged for an evaluation is about what it takes, whatever function is given whatever."""

import gc
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from typing import Any, Final
from zoneinfo import available_timezones

import pytest

from tape.predicates import DEFAULT_LIMITS, check
from tape.predicates.evaluate import Evaluation
from tape.predicates.to_python import compiled
from tape.predicates.values import EvaluationError
from tape.predicates.work import LimitError, Work, new_work

TURNS: Final = 300
FACTOR: Final = 4
"""A unit is a nanosecond of an ordinary machine; a slower one, and a busy one, may take longer."""

FREE_NS: Final = 500_000
TRIES: Final = 4


def long_text(last: str) -> str:
    """Of its own: what is compared with itself takes no time."""
    return "".join(["a"] * 2_000_000) + last


ZONES: Final = sorted(available_timezones())
PAYLOAD: Final[dict[str, Any]] = {
    "turns": list(range(TURNS)),
    "text": long_text("b"),
    "other": long_text("b"),
    "digits": "1" * 500_000,
    "keys": {long_text("b"): 1},
    "other_keys": {long_text("b"): 1},
    "list": list(range(50_000)),
    "map": {str(number): number for number in range(10_000)},
    "zones": [ZONES[number % len(ZONES)] for number in range(TURNS)],
    "patterns": [f"a{{0,{number}}}|[ab]{{30}}" for number in range(TURNS)],
    "moment": "2026-01-02T03:04:05.123456789Z",
}
OPERANDS: Final = (
    "payload.text", "payload.other", "payload.digits", "payload.keys", "payload.other_keys",
    "payload.list", "payload.map", "payload.zones[a]", "payload.patterns[a]", "payload.moment",
    "a", "dyn(1.5e300)",
)  # fmt: skip
UNARY: Final = (
    "size({})", "string({})", "bytes({})", "int({})", "uint({})", "double({})", "bool({})",
    "type({})", "timestamp({})", "duration({})", "-dyn({})", "string(timestamp({}))",
    "timestamp(0).getHours(dyn({}))", "timestamp(a).getDayOfYear(dyn({}))", "[{0}, {0}]",
    "{{'k': {}}}", "'ab'.matches(dyn({}))", "'ab'.matches(dyn({}) + '(')", "dyn({}).map(x, x)",
    "dyn({}).exists(x, false)", "has(dyn({}).k)", "string(bytes({}))",
)  # fmt: skip
BINARY: Final = (
    "dyn({}) == dyn({})", "dyn({}) < dyn({})", "dyn({}) + dyn({})", "dyn({}) - dyn({})",
    "dyn({}) * dyn({})", "dyn({}) / dyn({})", "dyn({}) % dyn({})", "dyn({}) in dyn({})",
    "dyn({})[dyn({})]", "{{dyn({}): 1}} == {{dyn({}): 1}}", "dyn({}).contains(dyn({}))",
    "dyn({}).startsWith(dyn({}))", "dyn({}).endsWith(dyn({}))", "dyn({}).matches(dyn({}))",
)  # fmt: skip
CASES: Final = [(form, 1) for form in UNARY] + [(form, 2) for form in BINARY]


def taken_and_charged(expression: str) -> tuple[float, int]:
    """Nanoseconds and units of the generated code, which ends by an error in any case, and of the
    plain evaluation after it."""
    left: list[int] = []

    def slowly(envelope: Mapping[str, object], work: Work) -> bool:
        with suppress(EvaluationError, LimitError):
            Evaluation(envelope, work).value(tree)
        left.append(work[0])
        return False

    tree = check(f"{expression} ? payload.absent : payload.absent").tree
    evaluate = compiled(tree, slowly, DEFAULT_LIMITS.steps).evaluate
    started = time.thread_time_ns()
    evaluate({"payload": PAYLOAD})
    took = time.thread_time_ns() - started
    return took, new_work(DEFAULT_LIMITS.steps)[0] - left[0]


@pytest.mark.middle
@pytest.mark.parametrize(("form", "operands"), CASES)
def test_what_takes_long_is_charged(form: str, operands: int) -> None:
    gc.disable()  # what else this process holds is no work of the predicate's
    try:
        for chosen in product(OPERANDS, repeat=operands):
            call = form.format(*chosen)
            expression = f"payload.turns.exists(a, [{call}].size() == 2)"
            for _ in range(TRIES):
                took, charged = taken_and_charged(expression)
                if took <= FACTOR * charged + FREE_NS:
                    break
            else:
                pytest.fail(f"{expression} took {took:,} ns and was charged {charged:,}")
    finally:
        gc.enable()
