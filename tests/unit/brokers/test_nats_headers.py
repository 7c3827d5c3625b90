"""Header blocks of NATS, read whole."""

import pytest

pytest.importorskip("nats", reason="needs the extra nats")

from nats.aio.client import Client
from nats.aio.msg import Msg

from tape.brokers.nats_headers import WholeHeaders, WholeHeadersClient, header_pairs, parsed_headers

BLOCK = (
    b"X-Route: a\r\nX-Route:b\r\nx-route: \tc \r\nOdd: \xfe\xff\r\nEmpty:\r\nColons: a:b: c\r\n"
    b"no colon\r\n: no name\r\nWith blank: 1\r\n\xc3\xa9: 1\r\n\r\n"
)
PAIRS = (
    ("X-Route", b"a"),
    ("X-Route", b"b"),
    ("x-route", b"c"),
    ("Odd", b"\xfe\xff"),
    ("Empty", b""),
    ("Colons", b"a:b: c"),
)


def test_every_value_of_a_name_is_kept_in_order_with_its_bytes() -> None:
    assert parsed_headers(BLOCK) == PAIRS
    assert parsed_headers(b"") == parsed_headers(b"\r\n") == ()


async def test_the_dict_of_the_library_stays_as_it_was() -> None:
    whole = await WholeHeadersClient()._process_headers(b"NATS/1.0\r\n" + BLOCK)
    named = BLOCK.replace(b": no name\r\n", b"")  # the library takes that for a header without one
    assert whole == await Client()._process_headers(b"NATS/1.0\r\n" + named)
    assert isinstance(whole, WholeHeaders)
    assert whole.pairs == PAIRS
    for block in (
        None, b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 404 No Messages\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n\r\n",
    ):  # fmt: skip
        mine = await WholeHeadersClient()._process_headers(block)
        assert mine == await Client()._process_headers(block)
        assert not isinstance(mine, WholeHeaders)


async def test_a_status_that_a_sender_wrote_is_a_header_and_not_the_servers_word() -> None:
    came = await WholeHeadersClient()._process_headers(b"NATS/1.0\r\nStatus: 404\r\nA: b\r\n\r\n")
    assert isinstance(came, WholeHeaders)
    assert came == {"A": "b"}
    assert came.pairs == (("Status", b"404"), ("A", b"b"))


@pytest.mark.parametrize(
    "block", [b"N", b"NATS/1.0", b"\xff" * 30, b"NATS/1.0 \xff", b"NATS/1.0 404 \xff\r\n\r\n "]
)
async def test_a_block_that_cannot_be_read_is_no_headers(block: bytes) -> None:
    assert await WholeHeadersClient()._process_headers(block) is None


def test_of_another_client_there_is_what_its_library_has_left() -> None:
    client = Client()
    assert header_pairs(Msg(client, headers={"a": "é"})) == (("a", "é".encode()),)
    assert header_pairs(Msg(client)) == ()
