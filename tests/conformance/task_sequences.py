"""Any sequence of steps, claims and settlements leaves the tasks as a plain model says."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape.errors import NotHeld
from tape.model.task import TaskKey, TaskStatus
from tape.ports.store import Store
from tests.conformance.dead_letters import dropping, expiring, replaying
from tests.conformance.playing import IDS, MANY, OpenStore, play, read_all
from tests.conformance.reacting import (
    HOUR_MS,
    a_task,
    claim,
    expect_sound,
    fail,
    queue,
    register,
    sources_with,
)

PENDING, CLAIMED, DONE, FAILED, DLQ = TaskStatus
SETTINGS: dict[str, dict[str, int]] = {
    "few": {"max_concurrency": 3, "retry_max": 5, "retry_backoff_ms": 0, "dlq_after_n": 2},
    "wide": {"num_shards": 2, "retry_max": 0, "dlq_after_n": 0},
    "slow": {},
}
BURST_MS = 10 * HOUR_MS  # between entries of one subject, where their window is an hour

Op = tuple[Any, ...]
NAMES = st.sampled_from(sorted(SETTINGS))
OWNERS = st.sampled_from(["a", "b"])
OPS = st.one_of(
    st.tuples(st.just("queue"), NAMES, st.integers(0, 1), st.booleans()),
    st.tuples(st.just("queue"), NAMES, st.integers(0, 1), st.booleans()),
    st.tuples(
        st.just("claim"), NAMES, OWNERS, st.integers(1, 4), st.sampled_from([0, HOUR_MS]),
        st.integers(-1, 1),
    ),
    st.tuples(st.just("again"), NAMES),
    st.tuples(st.just("complete"), NAMES, OWNERS),
    st.tuples(st.just("extend"), NAMES, OWNERS),
    st.tuples(
        st.just("fail"), NAMES, OWNERS, st.sampled_from(["", "permanent", "given_back"])
    ),
    st.tuples(st.just("expire")),
    st.tuples(st.just("replay"), NAMES),
    st.tuples(st.just("drop"), NAMES),
)  # fmt: skip


@dataclass
class Row:
    status: TaskStatus = PENDING
    attempts: int = 0
    waited: bool = False
    owner: str = ""
    ran_out: bool = False
    subject: str = ""
    ts_ms: int = 0


@dataclass
class Model:
    """The queue and what has ended, by name of the reaction, shard and source."""

    world: str
    queued: dict[TaskKey, Row] = field(default_factory=dict)
    ended: dict[TaskKey, TaskStatus] = field(default_factory=dict)
    verbs: Counter[str] = field(default_factory=Counter)
    coalesced: int = 0
    last_source: int = 0

    def keys(self, name: str) -> list[TaskKey]:
        reaction_id = f"{self.world}-{name}"
        return [key for key in (*self.queued, *self.ended) if key.reaction_id == reaction_id]

    def end(self, key: TaskKey, status: TaskStatus) -> None:
        del self.queued[key]
        self.ended[key] = status
        if status is not DONE:
            self.verbs["dead_lettered" if status is DLQ else "failed"] += 1

    def settle_failure(self, key: TaskKey, kind: str) -> TaskStatus:
        row, wide = self.queued[key], key.reaction_id.endswith("wide")
        used_up = row.attempts > 0 if wide else row.attempts >= (2 if "few" in key[0] else 5)
        if kind != "given_back" and (kind == "permanent" or used_up):
            status = FAILED if wide else DLQ
            self.end(key, status)
            return status
        row.attempts -= kind == "given_back"
        row.status, row.waited = PENDING, True
        return PENDING


class Player:
    """Does each operation on the store and on the model, and compares what came of it."""

    def __init__(self, store: Store, model: Model) -> None:
        self.store = store
        self.model = model

    async def play(self, op: Op) -> None:
        verb, *arguments = op
        await getattr(self, verb)(*arguments)

    async def queue(self, name: str, number: int, soon: bool) -> None:
        model = self.model
        model.last_source += 1
        shard = number if name == "wide" else 0
        key = TaskKey(f"{model.world}-{name}", shard, model.last_source)
        task = a_task(key.source_global_seq, key.reaction_id, shard=shard)
        if name != "slow":
            model.queued[key] = Row()
            await queue(self.store, [task])
            return
        subject = f"/tape/{number}"
        newest = max((r.ts_ms for r in model.queued.values() if r.subject == subject), default=0)
        ts_ms = newest + (HOUR_MS - 1 if soon else BURST_MS)
        for old in [k for k, r in model.queued.items() if r.subject == subject]:
            if ts_ms < model.queued[old].ts_ms + HOUR_MS:
                del model.queued[old]
                model.coalesced += 1
        model.queued[key] = Row(subject=subject, ts_ms=ts_ms)
        await queue(
            self.store, [task._replace(subject=subject, source_ts_ms=ts_ms, debounce_ms=HOUR_MS)]
        )

    async def again(self, name: str) -> None:
        """What exists, queued or ended, is not made again."""
        await queue(
            self.store,
            [
                a_task(key.source_global_seq, key.reaction_id, shard=key.shard)
                for key in self.model.keys(name)
            ],
        )

    async def claim(self, name: str, owner: str, most: int, lease_ms: int, shard: int) -> None:
        model = self.model
        found = await claim(
            self.store, f"{model.world}-{name}", most, owner=owner, lease_ms=lease_ms, shard=shard
        )
        rows = {key: model.queued[key] for key in model.keys(name) if key in model.queued}
        free = [
            key
            for key, row in rows.items()
            if row.status is PENDING and not row.subject and shard in (-1, key.shard)
        ]
        in_hand = sum(row.status is CLAIMED for row in rows.values())
        room = min(most, SETTINGS[name].get("max_concurrency", MANY) - in_hand)
        taken = [task.key for task in found]
        assert len(taken) == len(set(taken)) == min(room, len(free))
        assert set(taken) <= set(free)
        waited = [key for key in free if rows[key].waited]
        assert [rows[key].waited for key in taken] == sorted(
            (rows[key].waited for key in taken), reverse=True
        )
        assert sum(rows[key].waited for key in taken) == min(len(waited), len(taken))
        for each in (0, 1):
            fresh = sorted(k for k in free if not rows[k].waited and k.shard == each)
            mine = [k for k in taken if not rows[k].waited and k.shard == each]
            assert mine == fresh[: len(mine)]
        for task in found:
            row = rows[task.key]
            row.status, row.owner, row.ran_out = CLAIMED, owner, lease_ms == 0
            row.attempts += 1
            assert (task.attempts, task.lease_owner) == (row.attempts, owner)

    async def complete(self, name: str, owner: str) -> None:
        keys = self.model.keys(name)
        mine = [k for k in keys if k in self.model.queued and self.model.queued[k].owner == owner]
        settlement = await self.store.tasks.complete_tasks(owner, keys or [TaskKey("nobody", 0, 1)])
        assert set(settlement.done) == set(mine)
        assert set(settlement.others) >= set(keys) - set(mine)
        for key in mine:
            self.model.end(key, DONE)

    async def extend(self, name: str, owner: str) -> None:
        keys = self.model.keys(name)
        rows = {key: self.model.queued[key] for key in keys if key in self.model.queued}
        held = {k for k, row in rows.items() if row.status is CLAIMED and row.owner == owner}
        if keys:
            assert set(await self.store.tasks.extend_tasks(owner, HOUR_MS, keys)) == held
        for key in held:
            rows[key].ran_out = False

    async def fail(self, name: str, owner: str, kind: str) -> None:
        keys = self.model.keys(name)
        flags: dict[str, Any] = {kind: True} if kind else {}
        outcomes = await fail(self.store, owner, keys, **flags)
        for key, outcome in zip(keys, outcomes, strict=True):
            row = self.model.queued.get(key)
            if row is None:
                assert outcome is self.model.ended[key]
            elif row.owner != owner:
                assert isinstance(outcome, NotHeld)
            elif row.status is PENDING:
                assert outcome is PENDING
            else:
                assert outcome is self.model.settle_failure(key, kind)

    async def expire(self) -> None:
        found = await self.store.tasks.read_expired(MANY)
        model = self.model
        ran_out = [k for k, row in model.queued.items() if row.status is CLAIMED and row.ran_out]
        assert {key for key in found if key.reaction_id.startswith(model.world)} == set(ran_out)
        assert await play(self.store, expiring(ran_out)) == len(ran_out)
        for key in ran_out:
            model.settle_failure(key, "")

    async def replay(self, name: str) -> None:
        letters = await self._letters(name)
        assert await play(self.store, replaying(self.model.keys(name))) == len(letters)
        for key in letters:
            del self.model.ended[key]
            self.model.queued[key] = Row(waited=True)
        self.model.verbs["replayed"] += len(letters)

    async def drop(self, name: str) -> None:
        letters = await self._letters(name)
        assert await play(self.store, dropping(self.model.keys(name))) == len(letters)
        for key in letters:
            self.model.ended[key] = FAILED
        self.model.verbs["dropped"] += len(letters)

    async def _letters(self, name: str) -> list[TaskKey]:
        letters = [k for k in self.model.keys(name) if self.model.ended.get(k) is DLQ]
        reaction_id = f"{self.model.world}-{name}"
        listed = await self.store.tasks.list_tasks(reaction_id, DLQ, None, MANY)
        assert [task.key for task in listed] == sorted(letters)
        return letters


async def expect_equal(store: Store, model: Model, after: int) -> None:
    for name in SETTINGS:
        reaction_id = f"{model.world}-{name}"
        found = await store.tasks.list_tasks(reaction_id, None, None, MANY)
        queued = {task.key: task for task in found if task.status in (PENDING, CLAIMED)}
        assert {k: (t.status, t.attempts, t.lease_owner) for k, t in queued.items()} == {
            key: (row.status, row.attempts, row.owner)
            for key, row in model.queued.items()
            if key.reaction_id == reaction_id
        }
        assert {task.key: task.status for task in found if task.key not in queued} == {
            key: status for key, status in model.ended.items() if key.reaction_id == reaction_id
        }
        assert len(await sources_with(store, None, reaction_id)) == len(found)
    verbs = Counter(entry.subject.split("/")[3] for entry in await read_all(store, after))
    assert verbs == +model.verbs
    states = {state.reaction.reaction_id: state for state in await store.matching.list_reactions()}
    assert states[f"{model.world}-slow"].coalesced == model.coalesced


class TaskSequencesContract:
    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(ops=st.lists(OPS, max_size=40))
    async def test_any_sequence_ends_as_the_model_says(
        self, open_store: OpenStore, ops: list[Op]
    ) -> None:
        store = await open_store()
        model = Model(next(IDS))
        for name, each in SETTINGS.items():
            await register(store, f"{model.world}-{name}", **each)
        after = (await store.info()).head_global_seq
        player = Player(store, model)
        for op in ops:
            await player.play(op)
        await expect_equal(store, model, after)
        await expect_sound(store)
        await store.close()
