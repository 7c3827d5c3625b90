"""What a sender may decide, from its headers to the rows: nothing that the document does not allow.

`tests/unit/model/test_directive.py` asks the same of the plan alone.
"""

from typing import Any, Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape.model.message import Header, SourceMessage, bounded_key
from tape.model.run import RUNS
from tape.model.subscription_spec import (
    Control,
    HeaderSpec,
    SourceKind,
    SourceSpec,
    SubscriptionSpec,
)
from tape.subscriptions.planning import Planner
from tests.conformance.playing import LIMITS
from tests.unit.model.subscription_world import World
from tests.unit.model.test_directive import DISPATCH, listed_headers, other_headers, rules_of_some

CASES: Final = 1_300
CHUNKS: Final = 8
SPEC: Final = SubscriptionSpec(
    "s", "subscriptions/s", "pull", SourceSpec(SourceKind.NATS), DISPATCH
)
FREE: Final = (Control.CONTENT_TYPE, Control.SCHEMA_HINT)


def allowed(rules: HeaderSpec, controls: Control) -> set[str]:
    """What a control may be set to by these rules."""
    found = [each for each in rules.directives if each.controls is controls]
    return {value for each in found for value in (*each.allowed, *dict(each.pools).values())}


def accepted(rules: HeaderSpec, headers: list[Header]) -> tuple[Any, Any, list[Any]]:
    """The run's row, its first entry and the entries about its directives, as a listener's move
    makes them of a message."""
    world = World().active()
    planned = Planner(SPEC._replace(headers=rules), LIMITS).plan(
        SourceMessage("nats", "nats/S@1", "1", b"{}", tuple(headers))
    )
    before = len(world.state.entries)
    batch = world.accept(world.take(), planned)
    first, *told = world.state.entries[before:]
    return world.state.get(RUNS, batch.messages[0].run_id), first, told


def check_allowed(rules: HeaderSpec, run: Any, first: Any, told: list[Any]) -> None:
    apps = {DISPATCH.app, *allowed(rules, Control.PLAYBOOK)}
    pools = allowed(rules, Control.EXECUTION_POOL) | allowed(rules, Control.PRIORITY)
    pools.add(DISPATCH.execution_pool)
    payload = orjson_of(first)
    assert {run.app_name, payload["app_name"]} <= apps
    assert {run.pool, payload["pool"]} <= pools
    assert len(told) <= 1
    for entry in map(orjson_of, told):
        override = entry["route_override"]
        assert override["playbook"] in {None, run.app_name}
        assert override["pool"] in {None, run.pool}
        assert entry["run_id"] == run.run_id
        for each in entry["applied"]:
            (directive,) = [one for one in rules.directives if one.header == each["header"]]
            assert each["controls"] == directive.controls
            limits = allowed(rules, directive.controls)
            value = each["effective_value"]
            if directive.controls in FREE and not limits:
                continue
            if directive.controls is Control.IDEMPOTENCY_KEY and not limits:
                assert value == bounded_key(value)
                continue
            assert value in limits


def orjson_of(entry: Any) -> Any:
    return orjson.loads(entry.payload_json)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_value_that_is_not_allowed_is_in_a_run_or_its_audit(chunk: int) -> None:
    seen = audited = 0

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        rules_of_some,
        st.lists(listed_headers, max_size=6),
        st.lists(st.tuples(st.integers(0, 6), other_headers), max_size=4),
    )
    def check(rules: HeaderSpec, headers: list[Header], others: list[tuple[int, Header]]) -> None:
        nonlocal seen, audited
        seen += 1
        run, first, told = accepted(rules, headers)
        check_allowed(rules, run, first, told)
        audited += len(told)
        mixed = list(headers)
        for place, other in others:
            mixed.insert(place, other)
        again, _first, retold = accepted(rules, mixed)
        # Everything but the headers that are given to the run as data.
        assert again == run
        assert [*map(orjson_of, retold)] == [*map(orjson_of, told)]

    check()
    assert seen >= CASES, f"chunk {chunk} has seen {seen}"
    assert audited > CASES / 10, "too few are audited to show anything"
