"""What a page of entries makes of reactions: tasks, cursors, counts."""

from collections import Counter, deque
from typing import Any

import pytest

from tape.journal.follow import LIGHT_ENTRIES, envelope
from tape.model.entry import Entry
from tape.model.reaction import HandlerKind, Reaction, ReactionCursor, shard_of
from tape.ports.matching import CursorStep, NewTask
from tape.reactions import rules
from tape.reactions.rules import Matched, Matching, ReactionRule, ReactionRules, late_steps

MOST = 1_000


def an_entry(global_seq: int, name: str = "a", payload_json: str = "{}", **fields: Any) -> Entry:
    subject = f"/tape/event/recorded/{name}/_/_"
    plain = Entry(
        global_seq, "", 0, "event", subject, payload_json, 1, "", "", "", 1_000 + global_seq,
        f"id-{global_seq}", name, "", "", "", "", 0, "",
    )  # fmt: skip
    return plain._replace(**fields)


def a_rule(
    reaction_id: str = "r",
    pattern: str = "/tape/**",
    predicate: str = "",
    *,
    upto: int = 0,
    following: int = 1,
    **settings: Any,
) -> ReactionRule:
    reaction = Reaction(
        reaction_id, "", pattern, predicate, HandlerKind.TASK, "", "", 1, 0, 0, 5, 1000, 5, 1,
        "server", 0, 0,
    )._replace(**settings)  # fmt: skip
    cursors = [
        ReactionCursor(reaction_id, shard, upto, 0, following, 0, 0, 0, "", 0)
        for shard in range(reaction.num_shards)
    ]
    return ReactionRule(reaction, cursors)


def match(found: list[ReactionRule], entries: list[Entry], most: int = MOST) -> Matched:
    return ReactionRules(found).match(entries, entries[-1].global_seq, most)


def made(matched: Matched) -> list[tuple[str, int]]:
    return [(task.reaction_id, task.source_global_seq) for task in matched.tasks]


def test_a_predicate_sees_the_fields_of_an_event() -> None:
    rule = a_rule(predicate="event_type == 'a' && source == 'desk' && idempotency_key != ''")
    entries = [
        an_entry(1, source="desk", idempotency_key="k"),
        an_entry(2, "b", source="desk", idempotency_key="k"),
        an_entry(3, source="desk"),
    ]
    assert made(match([rule], entries)) == [("r", 1)]


def test_one_that_was_held_up_for_a_moment_does_not_owe_much() -> None:
    slow, quick = a_rule("slow", predicate="true"), a_rule("quick", predicate="true")
    common = ReactionRules([slow, quick])
    common.owe(slow, 0.02, 1.0)
    common.owe(quick, 0.000_1, 1.0)
    assert common.owes_much(slow)
    assert not common.owes_much(quick)


def test_a_rule_that_takes_too_long_is_put_off_and_the_others_go_on() -> None:
    slow = a_rule("slow", predicate="payload.n.all(x, x >= 0)", num_shards=2)
    quick = a_rule("quick", predicate="payload.n != null")
    entries = [an_entry(n, payload_json=f'{{"n":{list(range(2_000))}}}') for n in range(1, 9)]
    matching = Matching(ReactionRules([slow, quick]), entries, 8, MOST, allowed_s=0.0)
    asked = list(matching.steps())
    matched = matching.matched()
    assert matched.put_off == ("slow",)
    assert made(matched) == [("slow", 1), *(("quick", n) for n in range(1, 9))]
    steps = {
        (step.reaction_id, step.shard): (step.last_global_seq, step.following, step.matched)
        for step in matched.cursors
    }
    (first,) = {shard for name, shard in steps if name == "slow" and steps[name, shard][2]}
    assert steps == {
        ("quick", 0): (8, 1, 8),
        ("slow", first): (1, 0, 1),
        ("slow", 1 - first): (1, 0, 0),
    }
    assert len(asked) >= len(entries), "there is a stop before each predicate that may take long"


def test_a_rule_alone_that_takes_too_long_ends_the_page() -> None:
    rules = ReactionRules([a_rule("slow", predicate="payload.n.all(x, x >= 0)")])
    entries = [an_entry(n, payload_json=f'{{"n":{list(range(2_000))}}}') for n in range(1, 9)]
    matching = Matching(rules, entries, 8, MOST, allowed_s=0.0, alone=True)
    deque(matching.steps(), maxlen=0)
    matched = matching.matched()
    assert (made(matched), matched.through, matched.put_off) == ([("slow", 1)], 1, ())


SLOW_THOUGH_LIGHT = "||".join(["!payload.a"] * 340)
"""It is an error in each part, and nothing in it grows with an entry."""


def test_there_is_a_stop_after_a_few_predicates_of_one_entry() -> None:
    rules = ReactionRules([a_rule(f"r{n}", predicate=SLOW_THOUGH_LIGHT) for n in range(100)])
    assert rules.are_light
    asked = list(Matching(rules, [an_entry(1)], 1, MOST).steps())
    assert len(asked) >= 100 / LIGHT_ENTRIES
    assert max(asked) <= LIGHT_ENTRIES


def test_a_light_rule_that_takes_long_is_put_off_when_it_is_watched() -> None:
    slow = [a_rule(f"slow{n}", predicate=SLOW_THOUGH_LIGHT) for n in range(3)]
    quick = a_rule("quick", predicate="kind == 'event'")
    entries = [an_entry(n) for n in range(1, 200)]
    rules = ReactionRules([*slow, quick])
    matching = Matching(rules, entries, 199, MOST, allowed_s=0.005)
    matching.is_watching = True
    deque(matching.steps(), maxlen=0)
    matched = matching.matched()
    assert sorted(matched.put_off) == ["slow0", "slow1", "slow2"]
    assert len(made(matched)) == 199
    for reaction_id in matched.put_off:
        rules.take_out(reaction_id)
        rules.add(next(rule for rule in slow if rule.reaction_id == reaction_id))
    again = Matching(rules, [an_entry(200)], 200, MOST, allowed_s=0.005)
    deque(again.steps(), maxlen=0)
    assert sorted(again.matched().put_off) == sorted(matched.put_off), "nobody asks them again"
    assert not any(rule.counts for rule in slow)


def test_one_that_takes_long_no_more_is_matched_with_the_others_again() -> None:
    rule = a_rule(predicate="payload.n.all(x, x >= 0)")
    long, short = f'{{"n":{list(range(2_000))}}}', '{"n":[1]}'
    for payload, count, apart in ((long, 3, True), (short, 3_000, False)):
        entries = [an_entry(n, payload_json=payload) for n in range(1, count + 1)]
        allowed_s = 0.0 if apart else 1.0
        matching = Matching(
            ReactionRules([rule]), entries, count, 5_000, allowed_s, alone=not apart
        )
        deque(matching.steps(), maxlen=0)
        assert rule.apart is apart
        matching.matched()


def test_an_entry_makes_a_task_for_each_reaction_whose_pattern_it_matches() -> None:
    found = [
        a_rule("all"),
        a_rule("a", "/tape/event/recorded/a/*/*"),
        a_rule("b", "/tape/event/recorded/b/**"),
        a_rule("values", "/tape/value/**"),
    ]
    matched = match(found, [an_entry(1, "a"), an_entry(2, "b"), an_entry(3, "c")])
    assert made(matched) == [("all", 1), ("a", 1), ("all", 2), ("b", 2), ("all", 3)]
    assert matched.through == 3
    assert {(step.reaction_id, step.last_global_seq, step.matched) for step in matched.cursors} == {
        ("all", 3, 3),
        ("a", 3, 1),
        ("b", 3, 1),
    }


def test_a_task_says_where_it_comes_from() -> None:
    (task,) = match([a_rule(debounce_ms=70)], [an_entry(9)]).tasks
    assert task == NewTask("r", 0, 9, 1_009, "/tape/event/recorded/a/_/_", 70)


def test_a_predicate_decides_over_the_whole_envelope() -> None:
    rule = a_rule(predicate='payload.n > 1 && kind == "event" && subject.contains("/b/")')
    entries = [an_entry(1, "b", '{"n":1}'), an_entry(2, "b", '{"n":2}'), an_entry(3, "a", "{}")]
    with_error = match([rule], entries)
    assert made(with_error) == [("r", 2)]


def test_the_payload_is_parsed_once_and_only_if_a_predicate_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def counted(entry: Entry, *, with_payload: bool) -> dict[str, object]:
        asked.append(with_payload)
        return envelope(entry, with_payload=with_payload)

    monkeypatch.setattr(rules, "envelope", counted)
    plain, named = a_rule("plain"), a_rule("named", predicate='subject != ""')
    match([plain, named], [an_entry(1, payload_json="not parsed")])
    assert asked == [False]
    asked.clear()
    readers = [a_rule(name, predicate="payload.n == 1") for name in ("x", "y", "z")]
    assert len(match([named, *readers], [an_entry(2, payload_json='{"n":1}')]).tasks) == 4
    assert asked == [False, True]


def test_a_predicate_without_a_result_is_counted_and_makes_no_task() -> None:
    rule = a_rule(predicate="payload.price > 1.0")
    payloads = ("{}", '{"price":2.0}', '{"cost":1}')
    entries = [an_entry(k, payload_json=payload) for k, payload in enumerate(payloads, 1)]
    matched = match([rule], entries)
    assert made(matched) == [("r", 2)]
    (step,) = matched.cursors
    assert (step.matched, step.predicate_errors, step.last_error_global_seq) == (1, 2, 3)
    assert step.last_error == "entry 3: no such key: price"


def test_errors_alone_are_worth_a_cursor() -> None:
    matched = match([a_rule(predicate="payload.price > 1.0")], [an_entry(1), an_entry(2)])
    (step,) = matched.cursors
    assert (matched.tasks, step.matched, step.predicate_errors) == ([], 0, 2)


def test_an_error_is_told_in_bounds() -> None:
    rule = a_rule(predicate="int(payload.x) == 1 || payload[payload.x] == 2")
    (step,) = match([rule], [an_entry(1, payload_json='{"x":"' + "y" * 5_000 + '"}')]).cursors
    assert len(step.last_error) <= rules.ERROR_CHARACTERS


def test_counts_begin_anew_with_each_page() -> None:
    rule = a_rule(predicate="payload.n == 1")
    one = ReactionRules([rule])
    first = one.match([an_entry(1, payload_json='{"n":1}'), an_entry(2)], 2, MOST)
    one.advance(first.cursors)
    again = one.match([an_entry(3, payload_json='{"n":1}')], 3, MOST)
    assert [(s.matched, s.predicate_errors) for s in first.cursors + again.cursors] == [
        (1, 1),
        (1, 0),
    ]


def test_what_matched_nothing_moves_no_cursor() -> None:
    matched = match([a_rule("b", "/tape/event/recorded/b/**")], [an_entry(1), an_entry(2)])
    assert matched == Matched([], [], 2)


def test_tasks_go_to_the_shard_of_their_run_or_subject() -> None:
    rule = a_rule(num_shards=8)
    names = [f"n{k}" for k in range(20)]
    entries = [an_entry(k + 1, name) for k, name in enumerate(names)]
    entries += [an_entry(100 + k, "a", run_id=f"run-{k}") for k in range(20)]
    entries.append(an_entry(200, "other", run_id="run-3"))
    matched = match([rule], entries)
    shards = {task.source_global_seq: task.shard for task in matched.tasks}
    for entry in entries:
        assert shards[entry.global_seq] == shard_of(entry.run_id, entry.subject, 8)
    assert shards[200] == shards[103]
    assert len(set(shards.values())) == 8
    counted = {step.shard: step.matched for step in matched.cursors}
    assert counted == Counter(shards.values())
    assert {step.last_global_seq for step in matched.cursors} == {200}


def test_each_shard_has_its_own_cursor() -> None:
    rule = a_rule(num_shards=2)
    names = {shard_of("", f"/tape/event/recorded/n{k}/_/_", 2): f"n{k}" for k in range(9)}
    entries = [
        an_entry(1, names[0]),
        an_entry(2, names[1]),
        an_entry(3, names[0]),
        an_entry(4, names[1]),
    ]
    rule.upto = {0: 0, 1: 3}
    assert made(match([rule], entries)) == [("r", 1), ("r", 3), ("r", 4)]


def test_what_was_considered_is_not_considered_again() -> None:
    one = ReactionRules([a_rule(upto=2), a_rule("late", upto=1)])
    entries = [an_entry(1), an_entry(2), an_entry(3)]
    first = one.match(entries, 3, MOST)
    assert made(first) == [("late", 2), ("r", 3), ("late", 3)]
    one.advance(first.cursors)
    assert one.match(entries, 3, MOST) == Matched([], [], 3)


@pytest.mark.parametrize(("most", "through"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_a_step_has_a_bound_and_ends_with_a_whole_entry(most: int, through: int) -> None:
    found = [a_rule("r"), a_rule("s")]
    matched = match(found, [an_entry(1), an_entry(2), an_entry(3)], most)
    assert matched.through == through
    assert made(matched) == [(name, seq) for seq in range(1, through + 1) for name in ("r", "s")]
    assert {step.last_global_seq for step in matched.cursors} == {through}


def test_of_a_burst_on_a_page_the_last_is_kept() -> None:
    rule = a_rule(debounce_ms=100)
    burst = [an_entry(k, ts_ms=1_000 + 10 * k) for k in (1, 2, 3)]
    other = an_entry(4, "b", ts_ms=1_031)
    matched = match([rule], [*burst[:2], other, burst[2]._replace(global_seq=5)])
    assert made(matched) == [("r", 4), ("r", 5)]
    (step,) = matched.cursors
    assert (step.matched, step.coalesced) == (4, 2)


def test_the_window_goes_on_with_each_of_a_burst_and_ends_when_it_does() -> None:
    rule = a_rule(debounce_ms=100)
    times = (1_000, 1_090, 1_180, 1_280, 1_281)
    entries = [an_entry(k, ts_ms=at) for k, at in enumerate(times, 1)]
    # 1,280 is 100 after 1,180: the window is over.
    assert made(match([rule], entries)) == [("r", 3), ("r", 5)]


def test_bursts_of_two_reactions_are_two_things() -> None:
    found = [a_rule("r", debounce_ms=100), a_rule("plain"), a_rule("s", debounce_ms=5)]
    entries = [an_entry(1, ts_ms=1_000), an_entry(2, ts_ms=1_010)]
    assert made(match(found, entries)) == [
        ("plain", 1), ("s", 1), ("r", 2), ("plain", 2), ("s", 2)
    ]  # fmt: skip


def test_subjects_are_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SUBJECTS_REMEMBERED", 3)
    one = ReactionRules([a_rule("a", "/tape/event/recorded/n1/**")])
    entries = [an_entry(k, f"n{k % 7}") for k in range(1, 50)]
    assert len(one.match(entries, 49, MOST).tasks) == 7
    assert len(one._remembered) <= 3


def test_a_late_rule_moves_every_shard_and_joins_when_it_has_caught_up() -> None:
    rule = a_rule(num_shards=3, following=0)
    assert not rule.following
    matched = match([rule], [an_entry(5)])
    (moved,) = matched.cursors
    steps = late_steps(rule, matched, caught_up=False)
    assert [(step.shard, step.last_global_seq, step.following) for step in steps] == [
        (0, 5, 0), (1, 5, 0), (2, 5, 0)
    ]  # fmt: skip
    assert steps[moved.shard].matched == 1
    assert [step.following for step in late_steps(rule, matched, caught_up=True)] == [1, 1, 1]
    assert sum(step.matched for step in steps) == 1
    assert all(isinstance(step, CursorStep) for step in steps)
