"""A client that plays a listener: it holds a subscription and hands messages over, call by call."""

from collections.abc import Sequence
from typing import Any

import tape
from tape.model.message import SourceMessage
from tape.subscriptions.operations import AcceptMessagesRequest, HoldSubscription
from tape.wire.v1 import tape_pb2 as pb

DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: "NAME", path: subscriptions/NAME}
spec:
  source: file
  mode: pull
  activation: continuous
  folder: /var/inbox
  pattern: "*.jsonl"
  # No server listens for this one: the tests do.
  runtime: {target: cloud-run, server_url: "https://tape.example"}
  dispatch: {playbook: read_line, execution_pool: lines}
"""
ORIGIN = "file/var/inbox/a"


def document(name: str = "inbox", **keys: str) -> str:
    """With keys of the spec, each as its YAML."""
    more = "".join(f"  {key}: {text}\n" for key, text in keys.items())
    return DOCUMENT.replace("NAME", name) + more


def line(number: int, body: bytes = b'{"n": 1}', **fields: Any) -> pb.SourceMessage:
    at = {"source": "file", "origin": ORIGIN, "position": str(number)}
    return pb.SourceMessage(**{**at, "body": body, **fields})


async def activated(rpc: Any, name: str = "inbox", **keys: str) -> None:
    text = document(name, **keys)
    await rpc.RegisterSubscription(pb.RegisterSubscriptionRequest(document=text))
    await rpc.MoveSubscription(pb.MoveSubscriptionRequest(name=name, verb="activate"))


async def hold(rpc: Any, name: str = "inbox", **fields: Any) -> pb.HoldSubscriptionResponse:
    given: dict[str, Any] = {"lease_owner": "me", "lease_ttl_ms": 60_000, "backlog": -1} | fields
    held: pb.HoldSubscriptionResponse = await rpc.HoldSubscription(
        pb.HoldSubscriptionRequest(name=name, **given)
    )
    return held


async def accept(
    rpc: Any, token: int, messages: Sequence[pb.SourceMessage], name: str = "inbox"
) -> list[tuple[str, str]]:
    """What became of each, and its run."""
    answer = await rpc.AcceptMessages(
        pb.AcceptMessagesRequest(name=name, fencing_token=token, revision=1, messages=messages)
    )
    return [(message.outcome, message.run_id) for message in answer.messages]


async def hand_over(client: tape.AsyncTapeClient, *bodies: bytes, name: str = "inbox") -> int:
    """Hold a subscription and have messages with these bodies accepted, through the operations of a
    client; the token."""
    operations = client._operations.subscriptions
    held = await operations.hold_subscription(HoldSubscription(name, "me", 60_000))
    assert held.is_granted
    messages = [
        SourceMessage("file", ORIGIN, str(number), body, (("X-A", b"\xff"), ("x-a", b"1")))
        for number, body in enumerate(bodies, 1)
    ]
    request = AcceptMessagesRequest(name, held.revision, held.fencing_token, messages)
    accepted = await operations.accept_messages(request)
    assert [each.place for each in accepted] == [message.place for message in messages]
    return held.fencing_token


LISTENING: dict[str, Any] = {
    "HoldSubscription": lambda token: pb.HoldSubscriptionRequest(
        name="inbox", lease_owner="me", lease_ttl_ms=60_000, fencing_token=token, fetched=1
    ),
    "ReserveDispatches": lambda token: pb.ReserveDispatchesRequest(
        name="inbox", fencing_token=token, most=1
    ),
    "TickSubscription": lambda token: pb.TickSubscriptionRequest(
        name="inbox", fencing_token=token, due_at_ms=1
    ),
    "AcceptMessages": lambda token: pb.AcceptMessagesRequest(
        name="inbox", fencing_token=token, revision=1, messages=[line(1)]
    ),
}
"""A request of the listener for each call that carries its token."""
