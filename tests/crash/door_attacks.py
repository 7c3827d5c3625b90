"""Attacks on a server's doors, each in a process of its own: `python -m tests.crash.door_attacks
NAME GRPC HTTP SECONDS`. It prints a line when the attack is under way, goes on for so long, and
makes up for whatever the server closes.

`ATTACKS` names them all. Predicates that once stopped a server are asked as searches, as
reactions, and by followers.
"""

import itertools
import socket
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import grpc
import httpx

from tape.model.run import RunName
from tape.settings import MIB
from tape.wire.v1 import tape_pb2 as pb
from tape.wire.v1.tape_pb2_grpc import TapeStub
from tests.crash import predicate_attacks, raw_http2

HALF = 1_000
STREAMS = 60
ASKING = 4
FOLLOWING_S = 1.0
HEAD = b"GET /api/events/recent HTTP/1.1\r\nHost: localhost\r\nX-A: "
BODY = (
    b"POST /api/events/record HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\n\r\n{"
)
STREAM = b"GET /api/events/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = "large"
LARGE_RUN = RunName(LARGE, "u", "s", "i")
Attack = Callable[[str, str, float], None]


def _ready() -> None:
    print("under way", flush=True)


def _connect(address: str, text: bytes) -> socket.socket | None:
    host, _, port = address.rpartition(":")
    try:
        made = socket.create_connection((host, int(port)), timeout=5)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.sendall(text)
        made.setblocking(False)
    except OSError:
        return None
    return made


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _hold(address: str, text: bytes, count: int, seconds: float, *, reading: bool = False) -> None:
    """So many connections that have sent a text and nothing more; those closed are made anew."""
    held: list[socket.socket] = []
    until = time.monotonic() + seconds
    told = False
    while time.monotonic() < until:
        left = [each for each in held if reading or _is_open(each)]
        for gone in set(held) - set(left):
            gone.close()
        held = left
        for _ in range(count - len(held)):
            made = _connect(address, text)
            if made is None:
                break
            held.append(made)
        if not told:
            _ready()
            told = True
        time.sleep(0.2)


def half_heads(_grpc: str, http: str, seconds: float) -> None:
    _hold(http, HEAD, HALF, seconds)


def half_bodies(_grpc: str, http: str, seconds: float) -> None:
    _hold(http, BODY, HALF, seconds)


def silent_grpc(address: str, _http: str, seconds: float) -> None:
    """Connections that never say a word of HTTP/2."""
    _hold(address, b"", HALF, seconds)


def half_grpc(address: str, _http: str, seconds: float) -> None:
    """Connections that begin to speak HTTP/2 and stop after their settings."""
    _hold(address, raw_http2.PREFACE + raw_http2.EMPTY_SETTINGS, HALF, seconds)


def unread_sse(_grpc: str, http: str, seconds: float) -> None:
    _hold(http, STREAM, STREAMS, seconds, reading=True)


def unread_follow(address: str, _http: str, seconds: float) -> None:
    ask = pb.FollowEntriesRequest(subject_pattern="/**")
    _unread(address, seconds, lambda stub: stub.FollowEntries(ask))


def unread_subscribe(address: str, _http: str, seconds: float) -> None:
    ask = pb.SubscribeBySubjectRequest(subject_pattern="/**")
    _unread(address, seconds, lambda stub: stub.SubscribeBySubject(ask))


def unread_run(address: str, _http: str, seconds: float) -> None:
    """Entries of a run with payloads of almost the most that one may have."""
    ask = pb.SubscribeRunRequest(run_id=LARGE_RUN.run_id)
    _unread(address, seconds, lambda stub: stub.SubscribeRun(ask))


def unread_value(address: str, _http: str, seconds: float) -> None:
    """Changes of a value that are as large, each with the value before."""
    ask = pb.WatchValueRequest(namespace=LARGE, key=LARGE, from_version=1)
    _unread(address, seconds, lambda stub: stub.WatchValue(ask))


def untaken_answers(address: str, _http: str, seconds: float) -> None:
    """Connections that ask for a large value a thousand times and take no byte of it."""
    ask = pb.GetValueRequest(namespace=LARGE, key=LARGE)
    calls = b"".join(raw_http2.call(number, "GetValue", ask) for number in range(1_000))
    _hold(address, raw_http2.shut_window() + calls, ASKING, seconds)


def fill_large(address: str) -> None:
    """What those in `ASKS_FOR_LARGE` ask for."""
    text = '"' + "x" * (MIB - 2) + '"'
    with grpc.insecure_channel(address) as channel:
        stub: Any = TapeStub(channel)
        asked = LARGE_RUN._asdict()
        run = stub.BeginRun(pb.BeginRunRequest(lease_owner="me", **asked)).run
        ours = {"run_id": run.run_id, "fencing_token": run.fencing_token}
        event = pb.NewEvent(event_type="large", payload_json=text, **ours)
        write = pb.WriteValueRequest(namespace=LARGE, key=LARGE, value_json=text, if_version=-1)
        for _ in range(20):
            stub.RecordEvents(pb.RecordEventsRequest(events=[event]))
            stub.WriteValue(write)


def _unread(address: str, seconds: float, call: Callable[[Any], Iterable[Any]]) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    held = []
    for _ in range(STREAMS):
        channel = grpc.insecure_channel(address, options=own)
        held.append((channel, call(TapeStub(channel))))
    _ready()
    time.sleep(seconds)


def _searching(path: str) -> Attack:
    def attack(_grpc: str, http: str, seconds: float) -> None:
        until = time.monotonic() + seconds

        def ask() -> None:
            with httpx.Client(base_url=f"http://{http}", timeout=seconds + 5) as client:
                while time.monotonic() < until:
                    try:
                        client.get(path)
                    except httpx.HTTPError:
                        continue

        with ThreadPoolExecutor(ASKING) as asking:
            for _ in range(ASKING):
                asking.submit(ask)
            _ready()

    return attack


def filtered_follow(address: str, _http: str, seconds: float) -> None:
    """Followers whose predicates the store itself has to decide, each time another one."""
    until, numbers = time.monotonic() + seconds, itertools.count()

    def follow() -> None:
        with grpc.insecure_channel(address) as channel:
            while time.monotonic() < until:
                leaves = (f"payload.no{n} == {next(numbers)}.0" for n in range(8))
                ask = pb.FollowEntriesRequest(
                    subject_pattern="/**", predicate_cel=" || ".join(leaves)
                )
                try:
                    for _ in TapeStub(channel).FollowEntries(ask, timeout=FOLLOWING_S):
                        pass
                except grpc.RpcError:
                    continue

    with ThreadPoolExecutor(2 * ASKING) as following:
        for _ in range(2 * ASKING):
            following.submit(follow)
        _ready()


def costly_follow(address: str, http: str, seconds: float) -> None:
    """Followers on both doors whose predicates do as much for each entry as they may."""
    where = predicate_attacks.ATTACKS[0].where
    path = f"/api/events/stream?after=0&where={quote(where)}"
    ask = pb.FollowEntriesRequest(subject_pattern="/**", predicate_cel=where)
    with grpc.insecure_channel(address) as channel:
        held = [TapeStub(channel).FollowEntries(ask) for _ in range(STREAMS)]
        stream = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        _hold(http, stream, STREAMS, seconds, reading=True)
        del held


def reactions(address: str, _http: str, seconds: float) -> None:
    """All of the predicates, as reactions to what is there and to what comes."""
    with grpc.insecure_channel(address) as channel:
        for number, each in enumerate(predicate_attacks.ATTACKS):
            reaction = pb.Reaction(
                reaction_id=f"attack-{number}",
                subject_pattern="/tape/event/recorded/**",
                predicate_cel=each.where,
                handler_kind=pb.HANDLER_KIND_TASK,
                from_global_seq=0,
            )
            TapeStub(channel).RegisterReaction(reaction)
    _ready()
    time.sleep(seconds)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        half_heads, half_bodies, silent_grpc, half_grpc, unread_sse, unread_follow,
        unread_subscribe, unread_run, unread_value, untaken_answers, filtered_follow,
        costly_follow, reactions,
    )
}  # fmt: skip
ATTACKS |= {each.name: _searching(each.path) for each in predicate_attacks.ATTACKS}
MAKES_STREAMS = frozenset(
    {"unread_sse", "unread_follow", "unread_subscribe", "unread_run", "unread_value"}
)
ASKS_FOR_LARGE = frozenset({"unread_run", "unread_value", "untaken_answers"})
TAKES_A_SHARE = frozenset({"filtered_follow"})
"""Clients that read on for as long as they are served: what they ask for is done, in turns with
everybody else, so that others are slower by as much as that takes."""


if __name__ == "__main__":
    name, grpc_address, http_address, how_long = sys.argv[1:]
    ATTACKS[name](grpc_address, http_address, float(how_long))
