"""Which URLs name a server, and which would give a token away."""

import pytest

from tape.client.address import Address, parse_address
from tape.errors import InvalidArgument, Unsafe


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tape://127.0.0.1:7878", Address("127.0.0.1:7878", secure=False)),
        ("tape://localhost", Address("localhost:7878", secure=False)),
        ("tape://[::1]:1", Address("[::1]:1", secure=False)),
        ("tape://example.org:99?insecure=1", Address("example.org:99", secure=False)),
        ("tapes://example.org", Address("example.org:7878", secure=True)),
        ("tapes://h:1?ca=/tmp/a%20b.pem", Address("h:1", secure=True, ca="/tmp/a b.pem")),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert parse_address(url, with_token=True) == address


@pytest.mark.parametrize(
    "url",
    [
        "tape:", "tape://", "tape:host:1", "tape://h:99999", "tape://h:x", "tape://h/path",
        "tape://h?x=1", "tape://h?ca=f", "tapes://h?insecure=1", "tape://token@h", "tape://[::1",
        "tape://h?ca",
    ],
)  # fmt: skip
def test_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_address(url, with_token=False)


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "[2001:db8::1]", "127.0.0.1.nip.io"])
def test_a_token_never_crosses_a_network_in_the_clear(host: str) -> None:
    parse_address(f"tape://{host}", with_token=False)
    with pytest.raises(Unsafe):
        parse_address(f"tape://{host}", with_token=True)
    with pytest.raises(Unsafe):
        parse_address(f"tape://{host}?insecure=0", with_token=True)
