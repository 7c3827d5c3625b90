"""Effects: written down before they happen, settled under a claim, listed while they are open."""

from typing import Any

import pytest

from tape.errors import BusinessKeyTaken, StaleLease, TapeError
from tape.model.effect import (
    EFFECTS,
    BeginEffect,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
)
from tape.model.effect_claim import (
    ClaimEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.move import Need, save
from tape.model.obligation import RegisterCompensation
from tape.ports.runs import PendingQuery
from tape.ports.store import Store
from tests.conformance.playing import (
    MANY,
    Look,
    OpenStore,
    SaveRows,
    attempt,
    play,
    read_all,
)
from tests.conformance.running import (
    LONG_MS,
    SHORT_MS,
    Driver,
    changing,
    clock_of,
    drive,
    extending,
    pass_beyond,
    race,
)

EVERY = PendingQuery(limit=MANY, include_pending=True)


def outbox(tool: str, key: str, **fields: Any) -> BeginEffect:
    """An effect that must not happen twice, for a dispatcher to do."""
    plain = BeginEffect(
        0,
        tool,
        0,
        '{"n":1}',
        key,
        semantics=Semantics.NON_IDEMPOTENT,
        dispatch_mode=DispatchMode.OUTBOX,
    )
    return plain._replace(**fields)


def keys(effects: list[Effect]) -> list[str]:
    return [effect.idempotency_key for effect in effects]


async def to_dispatch(store: Store, *connectors: str, limit: int = MANY) -> list[str]:
    return keys(await store.runs.list_effects_to_dispatch(connectors, limit))


async def unknown(driver: Driver, key: str) -> None:
    """An inline effect of which nobody knows what became of it."""
    await driver.extend(
        BeginEffect(0, "look", 0, custom_key=key), CompleteEffect(key, EffectStatus.UNKNOWN)
    )


class EffectsContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        row = Effect(
            "r/ä", "k/ä", 1, 2, "tool", 3, EffectStatus.UNKNOWN, "[1]", "[2]", "[3]", 4, 5, 6, "b",
            "c", "s", 7, 8, "x", "me", 9, "e", 10,
        )  # fmt: skip
        assert all(row)
        await play(store, SaveRows(save(EFFECTS, row)))
        assert await (await open_store()).runs.get_effect("r/ä", "k/ä") == row
        changed = row._replace(
            status=EffectStatus.FAILED.value, response_json='"ä"', error_json='"€"',
            dispatch_attempts=0, next_dispatch_at_ms=0, external_ref="", dispatch_claimed_by="",
            dispatch_claim_expires_at_ms=0, last_dispatch_error="", claim_token=11,
        )  # fmt: skip
        await play(store, SaveRows(save(EFFECTS, changed)))
        assert await store.runs.get_effect("r/ä", "k/ä") == changed
        assert await play(store, Look(Need(EFFECTS, ("r/ä", "k/ä")))) == [changed]
        assert await store.runs.get_effect("r/ä", "K/ä") is None

    async def test_an_effect_that_was_begun_is_answered_as_it_stands(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        driver = await drive(store)
        begun = await driver.write(BeginEffect(0, "tool", 0, "[1]"))
        assert begun == await store.runs.get_effect(driver.run_id, begun.idempotency_key)
        settled = CompleteEffect(begun.idempotency_key, EffectStatus.CONFIRMED, '"done"')
        confirmed = await driver.write(settled)
        again = Driver(other, *driver[1:])
        assert await again.write(BeginEffect(0, "tool", 0, "[2]")) == confirmed
        assert await again.write(settled._replace(status=EffectStatus.FAILED)) == confirmed
        assert len(await read_all(store)) == 3

    async def test_a_business_key_is_one_effects_across_runs(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        drivers = [await drive(store, str(n)) for n, store in enumerate(stores)]
        begun = outbox("wire", "k", business_key="b")
        outcomes = await race(stores, [extending(d.run_id, d.token, begun) for d in drivers])
        taken = [isinstance(outcome, BusinessKeyTaken) for outcome in outcomes]
        assert taken.count(True) == len(stores) - 1
        loser, winner = drivers[taken.index(True)], drivers[taken.index(False)]
        assert await loser.store.runs.get_effect(loser.run_id, "k") is None
        (again,) = (await winner.extend(begun)).replies
        assert again.business_key == "b"
        await loser.write(outbox("wire", "k", business_key="b", connector="another"))
        assert await to_dispatch(stores[0]) == ["k", "k"]

    async def test_effects_to_dispatch_are_due_and_unclaimed(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.extend(*(outbox("wire", f"{n}") for n in range(5)))
        await driver.extend(outbox("mail", "mail"), BeginEffect(0, "inline", 0))
        assert await to_dispatch(store) == ["0", "1", "2", "3", "4", "mail"]
        assert await to_dispatch(store, "wire", limit=2) == ["0", "1"]
        assert await to_dispatch(store, "mail", "wire", "mail") == [*"01234", "mail"]
        assert await to_dispatch(store, "inline") == await to_dispatch(store, "none") == []
        living = await driver.tell(ClaimEffect("0", "d", LONG_MS))
        dead = await driver.tell(ClaimEffect("1", "d", SHORT_MS))
        confirmed = await driver.tell(ClaimEffect("2", "d", LONG_MS))
        await driver.tell(
            RecordExternalObservation("2", confirmed.claim_token, Resolution.CONFIRMED, "ref")
        )
        for key, wait_ms in (("3", LONG_MS), ("4", SHORT_MS)):
            later = await driver.tell(ClaimEffect(key, "d", LONG_MS))
            moment = await clock_of(store) + wait_ms
            await driver.tell(RecordDispatchAttempt(key, later.claim_token, "not yet", moment))
        await pass_beyond(store, max(dead.dispatch_claim_expires_at_ms, moment))
        assert await to_dispatch(await open_store(), "wire") == ["1", "4"]
        assert await to_dispatch(store) == ["1", "4", "mail"]
        renewed = await driver.tell(RenewClaim("1", dead.claim_token, LONG_MS))
        assert await to_dispatch(store, "wire") == ["4"]
        assert await store.runs.get_effect(driver.run_id, "1") == renewed
        assert (await store.runs.get_effect(driver.run_id, "0")) == living

    async def test_one_of_many_claims_an_effect(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        driver = await drive(stores[0])
        await driver.write(outbox("wire", "k"))
        claiming = [ClaimEffect("k", f"d{n}", LONG_MS) for n in range(len(stores))]
        outcomes = await race(stores, [changing(driver.run_id, claim) for claim in claiming])
        claims = [extended.replies[0] for extended in outcomes]
        (claimed,) = [claim for claim in claims if claim is not None]
        assert await stores[0].runs.get_effect(driver.run_id, "k") == claimed
        assert (claimed.claim_token, claimed.dispatch_attempts) == (1, 1)

    async def test_a_claim_that_ran_out_is_refused_after_another(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.write(outbox("wire", "k", semantics=Semantics.IDEMPOTENT))
        first = await driver.tell(ClaimEffect("k", "a", SHORT_MS))
        await pass_beyond(store, first.dispatch_claim_expires_at_ms)
        second = await driver.tell(ClaimEffect("k", "b", LONG_MS))
        assert second.claim_token == first.claim_token + 1
        said = RecordExternalObservation("k", first.claim_token, Resolution.FAILED)
        with pytest.raises(StaleLease):
            await driver.tell(said)
        settled = said._replace(claim_token=second.claim_token)
        assert (await driver.tell(settled)).status == EffectStatus.FAILED
        assert await driver.tell(settled) == await store.runs.get_effect(driver.run_id, "k")

    async def test_what_may_have_happened_is_not_dispatched_again(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.write(outbox("wire", "k"))
        lost = await driver.tell(ClaimEffect("k", "a", SHORT_MS))
        await pass_beyond(store, lost.dispatch_claim_expires_at_ms)
        assert await to_dispatch(store) == ["k"]
        assert await driver.tell(ClaimEffect("k", "b", LONG_MS)) is None
        assert await to_dispatch(store) == []
        (found,) = await store.runs.list_pending_effects(PendingQuery())
        assert (found.idempotency_key, found.status) == ("k", EffectStatus.UNKNOWN)

    async def test_effects_without_an_outcome(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.extend(BeginEffect(0, "inline", 0, custom_key="i"), outbox("wire", "o"))
        for key in ("u1", "u2", "u3", "u4"):
            await unknown(driver, key)
        await driver.extend(
            BeginEffect(0, "inline", 1, custom_key="done"),
            CompleteEffect("done", EffectStatus.CONFIRMED),
        )

        async def pending(**fields: Any) -> list[str]:
            return keys(await store.runs.list_pending_effects(EVERY._replace(**fields)))

        assert await pending() == ["i", "o", "u1", "u2", "u3", "u4"]
        assert await pending(limit=3) == ["i", "o", "u1"]
        assert await pending(include_pending=False) == ["u1", "u2", "u3", "u4"]
        assert await pending(include_unknown=False) == ["i", "o"]
        assert await pending(include_unknown=False, include_pending=False) == []
        assert await pending(connectors=["wire", "look", "wire"]) == ["o", "u1", "u2", "u3", "u4"]
        assert await pending(connectors=["none"]) == []
        assert await pending(older_than_ms=LONG_MS) == ["u1", "u2", "u3", "u4"]
        await driver.tell(ClaimEffect("u1", "r", LONG_MS))
        ran_out = await driver.tell(ClaimEffect("u2", "r", SHORT_MS))
        later = await driver.tell(ClaimEffect("u3", "r", LONG_MS))
        moment = await clock_of(store) + LONG_MS
        await driver.tell(RecordDispatchAttempt("u3", later.claim_token, "no word", moment))
        await pass_beyond(store, ran_out.dispatch_claim_expires_at_ms)
        assert await pending() == ["i", "o", "u2", "u4"]

    async def test_a_confirmed_effect_and_its_compensation_are_one_write(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.write(BeginEffect(0, "tool", 0, custom_key="k"))
        undo = RegisterCompensation("k", "undo", '{"n":1}')
        await driver.write(CompleteEffect("k", EffectStatus.CONFIRMED, compensation=undo))
        (registered,) = await store.runs.list_obligations(driver.run_id)
        assert (registered.effect_key, registered.payload_json) == ("k", '{"n":1}')
        assert (await driver.run()).top_obligation == registered.seq

    async def test_a_refused_batch_leaves_no_effect(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        (outcome,) = await attempt(
            store,
            extending(
                driver.run_id,
                driver.token,
                outbox("wire", "k", business_key="b"),
                CompleteEffect("none", EffectStatus.CONFIRMED),
            ),
        )
        assert isinstance(outcome, TapeError)
        assert await to_dispatch(store) == []
        await (await drive(store, "2")).write(outbox("wire", "k", business_key="b"))
