"""How both ends of a connection are set up."""

from typing import Any

import grpc

from tape.settings import KIB, MIB, DoorSettings, Limits
from tape.wire.loopback import is_loopback

Options = tuple[tuple[str, Any], ...]

KEEPALIVE_MS = 30_000
KEEPALIVE_ANSWER_MS = 20_000
# Of one client at a time, so that a burst is queued there and not refused by the server.
CALLS_AT_ONCE = 512

# A peer that vanished without a word is found out by pings, also where nobody calls just now.
_PINGS: Options = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

STREAMS_AT_ONCE = 1_024
"""Of one connection; a client of ours asks for half of that."""
CALLS_WAITING = 16_384
"""Calls that arrived and that the event loop has not taken: more than one client may have open.
gRPC's default is 1,000, from which on it cancels calls at random, whosoever they are."""
CALLS_WAITING_MOST = 32_768
"""From here on it cancels all of them; each takes some kilobytes."""
WRITE_BUFFER_BYTES = 64 * KIB


def plain_channel(address: str, options: Options = ()) -> grpc.aio.Channel:
    """A connection without TLS: to a server of ours, or to an emulator. One to this machine goes
    there and through no proxy that `http_proxy` names, which could read along."""
    host = address.rpartition(":")[0].strip("[]")
    direct: Options = (("grpc.enable_http_proxy", 0),) if is_loopback(host) else ()
    return grpc.aio.insecure_channel(address, (*options, *direct))


def server_options(doors: DoorSettings) -> Options:
    """A connection that does not begin to speak, or has nothing more to say, is closed, as is one
    above the number allowed."""
    return (
        *_PINGS,
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.max_concurrent_streams", STREAMS_AT_ONCE),
        ("grpc.server.max_pending_requests", CALLS_WAITING),
        ("grpc.server.max_pending_requests_hard_limit", CALLS_WAITING_MOST),
        ("grpc.server_handshake_timeout_ms", round(1000 * doors.header_s)),
        ("grpc.max_allowed_incoming_connections", doors.connections),
        ("grpc.max_connection_idle_ms", round(1000 * doors.idle_s)),
        ("grpc.http2.write_buffer_size", WRITE_BUFFER_BYTES),
        # Two servers on one port would share its connections in silence.
        ("grpc.so_reuseport", 0),
    )


# gRPC's own waits between attempts to connect grow to two minutes.
CLIENT_OPTIONS: Options = (
    *_PINGS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Else a new client shares the connection, and its waits, of an older one to the same server.
    ("grpc.use_local_subchannel_pool", 1),
    # The server judges what it takes; the client does not know what that server is set to.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


def message_bytes(limits: Limits) -> Options:
    """A request counts payloads; names and ids come on top of them."""
    most = 2 * limits.request_bytes + 4 * MIB
    return (("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most))
