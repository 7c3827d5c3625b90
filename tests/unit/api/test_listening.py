import pytest

from tape.api.listening import host_of_peer


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:1.2.3.4:567", "1.2.3.4"),
        ("ipv6:[::1]:567", "::1"),
        ("ipv6:%5B::1%5D:567", "::1"),
        ("unix:/run/tape.sock", "unix:/run/tape.sock"),
    ],
)
def test_a_peer_of_grpc_is_named_as_http_names_it(peer: str, host: str) -> None:
    assert host_of_peer(peer) == host
