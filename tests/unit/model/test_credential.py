"""Credentials: which versions are good after which moves, and that entries tell no value."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.errors import InvalidArgument, NoCredential, TooLarge, VersionMismatch
from tape.model.credential import (
    CREDENTIAL_VERSIONS,
    CREDENTIALS,
    CountOpenings,
    Credential,
    CredentialState,
    CredentialVersion,
    DeleteCredential,
    PutCredential,
    RetireCredential,
    RewrapCredential,
    check_alias,
)
from tape.model.move import EntryPlace, State
from tape.settings import Limits

LIMITS = Limits()
ALIAS = "nats/main é"


class World:
    """One wallet, and what happens to it."""

    def __init__(self) -> None:
        self.state = State(100, 1)
        self.seen = 0

    def play(self, move: Any) -> Any:
        self.state.now_ms += 1
        decision = move.decide(self.state)
        first = self.state.apply(decision)
        return decision.reply(EntryPlace(first, self.state.now_ms))

    @property
    def row(self) -> Credential | None:
        return self.state.get(CREDENTIALS, ALIAS)

    @property
    def good(self) -> list[CredentialVersion]:
        """Those that have a row, the current one first."""
        rows = [self.state.get(CREDENTIAL_VERSIONS, (ALIAS, n)) for n in range(100, 0, -1)]
        return [row for row in rows if row is not None]

    def put(self, *, rotates: bool = False, version: int = 0, key_id: str = "k1") -> Any:
        version = version or 1 + (self.row.version if self.row else 0)
        return self.play(
            PutCredential(sealed(version, key_id), "e", LIMITS, keeps_previous=rotates)
        )

    def retire(self, version: int = 0) -> Any:
        version = version or (self.row.version if self.row else 1)
        return self.play(RetireCredential(ALIAS, version, "e", LIMITS))

    def delete(self) -> Any:
        return self.play(DeleteCredential(ALIAS, "e", LIMITS))

    def told(self) -> list[tuple[str, int, int, str]]:
        """What entries said since it was asked last."""
        new, self.seen = self.state.entries[self.seen :], len(self.state.entries)
        found = []
        for entry in new:
            payload = orjson.loads(entry.payload_json)
            assert payload.keys() == {"alias", "version", "previous_version", "key_id"}
            assert payload["alias"] == ALIAS
            assert entry.kind == "wallet"
            _, _, _, verb, alias = entry.subject.split("/")
            assert alias == "nats%2Fmain%20%C3%A9"
            found.append((verb, *[payload[f] for f in ("version", "previous_version", "key_id")]))
        return found


def sealed(version: int, key_id: str = "k1") -> CredentialVersion:
    mark = str(version).encode()
    return CredentialVersion(ALIAS, version, "text", key_id, b"w" + mark, b"n" + mark, b"c" + mark)


def test_put_refuses_the_version_before_at_once() -> None:
    world = World()
    first = world.put()
    assert first == CredentialState(ALIAS, 1, 0, "text", "k1", 101, 101, 0)
    second = world.put(key_id="k2")
    assert second == CredentialState(ALIAS, 2, 0, "text", "k2", 101, 102, 0)
    assert [row.version for row in world.good] == [2]
    assert world.good[0] == sealed(2, "k2")._replace(wrapped_at_ms=102)
    assert world.told() == [("put", 1, 0, "k1"), ("put", 2, 0, "k2")]


def test_a_rotation_keeps_one_version_before() -> None:
    world = World()
    with pytest.raises(NoCredential, match="'nats/main é'"):
        world.put(rotates=True)
    world.put()
    rotated = world.put(rotates=True, key_id="k2")
    assert (rotated.version, rotated.previous_version) == (2, 1)
    assert (rotated.key_id, rotated.previous_key_id) == ("k2", "k1")
    assert [row.version for row in world.good] == [2, 1]
    world.put(rotates=True)
    assert [row.version for row in world.good] == [3, 2]
    world.put()
    assert [row.version for row in world.good] == [4]
    assert [verb for verb, *_ in world.told()] == ["put", "rotated", "rotated", "put"]


def test_retiring_leaves_the_current_one() -> None:
    world = World()
    with pytest.raises(NoCredential):
        world.retire()
    world.put()
    world.put(rotates=True)
    world.told()
    retired = world.retire()
    assert (retired.version, retired.previous_version, retired.previous_key_id) == (2, 0, "")
    assert [row.version for row in world.good] == [2]
    assert world.told() == [("retired", 2, 0, "k1")]
    assert world.retire() == retired
    assert world.told() == []


def test_numbers_go_on_after_a_deletion() -> None:
    world = World()
    assert world.delete() is False
    world.put()
    world.put(rotates=True)
    assert world.delete() is True
    assert world.good == []
    assert world.delete() is False
    with pytest.raises(NoCredential):
        world.put(rotates=True)
    with pytest.raises(NoCredential):
        world.retire()
    again = world.put()
    assert (again.version, again.previous_version) == (3, 0)
    assert again.created_at_ms == again.changed_at_ms
    verbs = [(verb, version) for verb, version, *_ in world.told()]
    assert verbs == [("put", 1), ("rotated", 2), ("deleted", 2), ("put", 3)]


def test_what_was_sealed_for_another_number_is_refused() -> None:
    world = World()
    world.put()
    for version in (1, 3):
        for rotates in (True, False):
            with pytest.raises(VersionMismatch, match="is at version 1"):
                world.put(version=version, rotates=rotates)
    with pytest.raises(VersionMismatch):
        world.retire(version=2)
    assert len(world.state.entries) == 1


def test_a_rewrap_is_lost_to_whoever_was_faster() -> None:
    world = World()
    world.put()
    before = world.good[0]
    moved = before._replace(key_id="k2", wrapped_key=b"moved", ciphertext=b"never looked at")
    rewrap = RewrapCredential(before.wrapped_key, moved, "e", LIMITS)
    assert world.play(rewrap) is True
    (now,) = world.good
    assert now == before._replace(key_id="k2", wrapped_key=b"moved", wrapped_at_ms=now[-1])
    assert world.play(rewrap) is False
    world.put(rotates=True)
    world.told()
    stale = RewrapCredential(b"moved", moved._replace(version=7), "e", LIMITS)
    assert world.play(stale) is False
    again = RewrapCredential(b"moved", moved._replace(key_id="k3"), "e", LIMITS)
    assert world.play(again) is True
    assert world.told() == [("rewrapped", 1, 1, "k3")]
    world.put()
    assert world.play(again) is False
    world.delete()
    assert world.play(RewrapCredential(b"w3", sealed(3), "e", LIMITS)) is False


def test_openings_are_added_and_make_no_entry() -> None:
    world = World()
    world.put()
    world.told()
    for _ in range(2):
        world.play(CountOpenings({ALIAS: 3, "another": 1}))
    assert world.row is not None
    assert world.row.opened == 6
    assert world.told() == []
    assert world.put().opened == 6


@pytest.mark.parametrize(
    ("alias", "kind"), [("", InvalidArgument), ("a\0", InvalidArgument), ("é" * 257, TooLarge)]
)
def test_an_alias_that_can_be_none(alias: str, kind: type[InvalidArgument]) -> None:
    for make in (
        lambda: PutCredential(sealed(1)._replace(alias=alias), "e", LIMITS),
        lambda: RetireCredential(alias, 1, "e", LIMITS),
        lambda: DeleteCredential(alias, "e", LIMITS),
    ):
        with pytest.raises(kind, match="alias"):
            make()


def test_what_is_printed_of_a_version_holds_nothing_sealed() -> None:
    assert repr(sealed(1)) == f"CredentialVersion({ALIAS!r}, 1, key 'k1')"


@given(st.lists(st.sampled_from(["put", "rotate", "retire", "delete", "rewrap"]), max_size=30))
@settings(max_examples=300)
def test_whatever_happens_the_rows_are_those_that_are_good(acts: list[str]) -> None:
    world = World()
    good: list[int] = []
    last = 0
    for act in acts:
        match act:
            case "put":
                world.put()
                last += 1
                good = [last]
            case "rotate" if good:
                world.put(rotates=True)
                last += 1
                good = [last, good[0]]
            case "retire" if good:
                world.retire()
                good = good[:1]
            case "delete":
                assert world.delete() is bool(good)
                good = []
            case "rewrap":
                for row in world.good:
                    now = row._replace(key_id="k9", wrapped_key=row.wrapped_key + b"+")
                    assert world.play(RewrapCredential(row.wrapped_key, now, "e", LIMITS))
            case _:
                with pytest.raises(NoCredential):
                    world.put(rotates=True) if act == "rotate" else world.retire()
        assert [row.version for row in world.good] == good
        assert [*(world.row.versions if world.row else ())] == good
        assert all(row.ciphertext == sealed(row.version).ciphertext for row in world.good)
    sealed_then = [v for verb, v, *_ in world.told() if verb in ("put", "rotated")]
    assert sealed_then == [*range(1, last + 1)]


def test_an_operation_of_the_wallet_is_no_alias() -> None:
    with pytest.raises(InvalidArgument, match=r"'rewrap' names an operation of the wallet"):
        check_alias("rewrap", LIMITS)
    assert check_alias("rewrap-2", LIMITS) == "rewrap-2"
