"""Reactions through the doors: registered, changed, listed, taken back; nonsense is refused."""

from typing import Any

import grpc
import pytest

import tape
from tape.model.reaction import NewReaction
from tape.wire.errors import from_rpc_error
from tape.wire.v1 import tape_pb2 as pb

ORDERS = "/tape/event/recorded/order.placed/**"


def asked(**fields: Any) -> pb.Reaction:
    return pb.Reaction(
        **{"reaction_id": "r", "subject_pattern": ORDERS, "handler_kind": 2, **fields}
    )


async def test_what_is_left_out_has_its_default(rpc: Any) -> None:
    made = await rpc.RegisterReaction(asked())
    assert made.created_at_ms > 0
    assert (made.max_concurrency, made.rate_limit_per_s, made.debounce_ms) == (1, 0, 0)
    assert (made.retry_max, made.retry_backoff_ms, made.dlq_after_n) == (5, 1000, 5)
    assert (made.num_shards, made.engine, made.deleted) == (1, "server", False)
    assert not made.HasField("from_global_seq")
    assert await rpc.RegisterReaction(asked(bootstrap_from_head=True)) == made


async def test_an_explicit_nought_is_kept(rpc: Any) -> None:
    made = await rpc.RegisterReaction(asked(retry_max=0, retry_backoff_ms=0, dlq_after_n=0))
    assert (made.retry_max, made.retry_backoff_ms, made.dlq_after_n) == (0, 0, 0)


async def test_an_agent_may_name_its_pool(rpc: Any) -> None:
    agent = {"handler_kind": 1, "agent_app": "desk"}
    assert (await rpc.RegisterReaction(asked(**agent))).pool == ""
    assert (await rpc.RegisterReaction(asked(**agent, pool="gpu"))).pool == "gpu"
    (listed,) = (await rpc.ListReactions(pb.ListReactionsRequest())).reactions
    assert listed.pool == "gpu"


async def test_registering_again_changes_settings_and_never_cursors(rpc: Any) -> None:
    for _ in range(3):
        await rpc.RecordEvents(pb.RecordEventsRequest(events=[pb.NewEvent(event_type="a")]))
    first = await rpc.RegisterReaction(asked())
    again = await rpc.RegisterReaction(asked(max_concurrency=7, from_global_seq=0))
    assert (again.created_at_ms, again.max_concurrency) == (first.created_at_ms, 7)
    listed = await rpc.ListReactions(pb.ListReactionsRequest())
    assert list(listed.reactions) == [again]
    (progress,) = listed.progress
    assert (progress.reaction_id, progress.position, progress.following) == ("r", 3, True)
    assert (progress.matched, progress.pending, progress.claimed, progress.dead_letters) == (
        0, 0, 0, 0,
    )  # fmt: skip


async def test_taken_back(rpc: Any) -> None:
    request = pb.DeregisterReactionRequest(reaction_id="r")
    assert not (await rpc.DeregisterReaction(request)).deregistered
    await rpc.RegisterReaction(asked())
    assert (await rpc.DeregisterReaction(request)).deregistered
    assert not (await rpc.DeregisterReaction(request)).deregistered
    assert not (await rpc.ListReactions(pb.ListReactionsRequest())).reactions


async def test_without_an_id_it_is_named_after_what_it_does(rpc: Any) -> None:
    one = await rpc.RegisterReaction(asked(reaction_id=""))
    two = await rpc.RegisterReaction(asked(reaction_id="", handler_kind=1, agent_app="pricing"))
    assert one.reaction_id.startswith("task:")
    assert two.reaction_id.startswith("agent:pricing:")
    assert await rpc.RegisterReaction(asked(reaction_id="")) == one
    assert len((await rpc.ListReactions(pb.ListReactionsRequest())).reactions) == 2


REFUSED: list[tuple[dict[str, Any], str, int | None]] = [
    ({"subject_pattern": ""}, "subject_pattern", 0),
    ({"subject_pattern": "/tape/event/**/x"}, "subject_pattern", 12),
    ({"predicate_cel": "payload.a >"}, "predicate_cel", 11),
    ({"predicate_cel": "1 + 1"}, "predicate_cel", None),
    ({"predicate_cel": "true || " * 1000 + "true"}, "predicate_cel", None),
    ({"handler_kind": 0}, "handler_kind", None),
    ({"handler_kind": 9}, "handler_kind", None),
    ({"handler_kind": 1}, "agent_app", None),
    ({"handler_kind": 3}, "publish_target", None),
    ({"agent_app": "a"}, "agent_app", None),
    ({"handler_kind": 3, "publish_target": "carrier-pigeon:"}, "publish_target", None),
    ({"max_concurrency": 0}, "max_concurrency", None),
    ({"num_shards": 0}, "num_shards", None),
    ({"num_shards": 2000}, "num_shards", None),
    ({"rate_limit_per_s": -1}, "rate_limit_per_s", None),
    ({"debounce_ms": 2**31 - 1}, "debounce_ms", None),
    ({"from_global_seq": -1}, "from_global_seq", None),
    ({"from_global_seq": 99}, "from_global_seq", None),
    ({"from_global_seq": 0, "bootstrap_from_head": True}, "bootstrap_from_head", None),
    ({"engine": "fast"}, "engine", None),
    ({"reaction_id": "a\0b"}, "reaction_id", 1),
    ({"reaction_id": "r" * 600}, "reaction_id", None),
    ({"name": "n" * 600}, "name", None),
]


async def test_bad_input_is_named(rpc: Any) -> None:
    for fields, field, position in REFUSED:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await rpc.RegisterReaction(asked(**fields))
        error = from_rpc_error(failed.value)
        assert isinstance(error, tape.InvalidArgument), fields
        large = isinstance(error, tape.TooLarge)
        expected = "RESOURCE_EXHAUSTED" if large else "INVALID_ARGUMENT"
        assert failed.value.code().name == expected, fields
        assert error.field == field, fields
        if position is not None:
            assert error.position == position, fields
    assert not (await rpc.ListReactions(pb.ListReactionsRequest())).reactions


async def test_from_every_url(url: str) -> None:
    async with tape.connect_async(url) as client:
        await client.record("order.placed")
        made = await client.register_reaction(
            "large orders",
            ORDERS,
            where="payload.total > 100.0",
            max_concurrency=8,
            retry_max=0,
            name="Large orders",
            from_global_seq=0,
        )
        assert isinstance(made, tape.Reaction)
        assert (made.reaction_id, made.predicate_cel) == ("large orders", "payload.total > 100.0")
        assert (made.max_concurrency, made.retry_max, made.handler_kind) == (8, 0, 2)
        older = await client.register_reaction("older", ORDERS, predicate="payload.total > 100.0")
        assert older.predicate_cel == made.predicate_cel
        assert await client.deregister_reaction("older")
        with pytest.raises(tape.InvalidArgument, match="is another name for where"):
            await client.register_reaction("both", ORDERS, where="true", predicate="true")
        whole = NewReaction("all", "/**", tape.HandlerKind.AGENT, agent_app="audit")
        assert (await client.register_reaction(whole)).agent_app == "audit"
        named = await client.register_reaction("", ORDERS, publish="log:")
        assert named.reaction_id.startswith("publish:log::")

        states = await client.list_reactions()
        assert [s.reaction.reaction_id for s in states] == [
            "all",
            "large orders",
            named.reaction_id,
        ]
        assert states[1].reaction == made
        by_pattern = await client.list_reactions("/**")
        assert [s.reaction.reaction_id for s in by_pattern] == ["all"]
        by_subject = await client.list_reactions("/tape/event/recorded/order.placed/order/7")
        assert len(by_subject) == 3
        assert await client.list_reactions("/tape/value/changed/n/k") == [states[0]]

        assert await client.deregister_reaction("all") is True
        assert await client.deregister_reaction("all") is False
        for arguments, options, field in (
            (("r", "/tape"), {}, "subject_pattern"),
            (("r", "/**"), {"predicate": "1 +"}, "predicate_cel"),
            (("r", "/**"), {"max_concurrency": 0}, "max_concurrency"),
            (("r", "/**"), {"agent": "a", "publish": "log:"}, "agent"),
            (("r", "/**"), {"agents": "a"}, "agents"),
            (("r", "/**"), {"reaction_id": "q"}, "reaction_id"),
            (("r", "/**"), {"retry_max": 2**40}, "retry_max"),
            ((whole, "/**"), {}, "reaction"),
        ):
            with pytest.raises(tape.InvalidArgument) as refused:
                await client.register_reaction(*arguments, **options)
            if not url.startswith("tape") or field != "retry_max":  # does not fit its field there
                assert refused.value.field == field
