"""Credentials come back as they were sealed, whole, and only the good versions of them."""

import asyncio

from tape.errors import VersionMismatch
from tape.model.credential import (
    CountOpenings,
    Credential,
    CredentialState,
    CredentialVersion,
    DeleteCredential,
    PutCredential,
    RetireCredential,
    RewrapCredential,
)
from tape.ports.store import Store
from tests.conformance.playing import IDS, LIMITS, OpenStore, attempt, play, read_all

BYTES = bytes(range(256))


def sealed(alias: str, version: int = 1, key_id: str = "k1") -> CredentialVersion:
    mark = f"{alias} {version}".encode()
    return CredentialVersion(
        alias, version, "text", key_id, BYTES + mark, b"n" + mark, b"\0" + mark
    )


def putting(row: CredentialVersion, *, rotates: bool = False) -> PutCredential:
    return PutCredential(row, next(IDS), LIMITS, keeps_previous=rotates)


async def put(
    store: Store, alias: str, version: int = 1, *, rotates: bool = False, key_id: str = "k1"
) -> CredentialState:
    return await play(store, putting(sealed(alias, version, key_id), rotates=rotates))


async def versions(store: Store, alias: str) -> list[int]:
    return [row.version for row in await store.wallet.get_credential_versions(alias)]


class WalletContract:
    async def test_what_is_sealed_comes_back_byte_by_byte(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        assert await store.wallet.get_credential("a") is None
        assert await store.wallet.get_credential_versions("a") == []
        state = await put(store, "ä/ 1")
        (row,) = await other.wallet.get_credential_versions("ä/ 1")
        assert row == sealed("ä/ 1")._replace(wrapped_at_ms=state.changed_at_ms)
        assert isinstance(row.ciphertext, bytes)
        found = await other.wallet.get_credential("ä/ 1")
        assert found == Credential("ä/ 1", 1, 0, state.created_at_ms, state.changed_at_ms)
        assert await other.wallet.list_credentials() == [state]

    async def test_only_the_good_versions_are_there(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await put(store, "a")
        await put(store, "a", 2, rotates=True)
        assert await versions(other, "a") == [2, 1]
        rotated = await put(other, "a", 3, rotates=True, key_id="k2")
        assert await versions(store, "a") == [3, 2]
        (listed,) = await store.wallet.list_credentials()
        assert listed == rotated
        assert (listed.key_id, listed.previous_key_id) == ("k2", "k1")
        await play(store, RetireCredential("a", 3, next(IDS), LIMITS))
        assert await versions(other, "a") == [3]
        await put(other, "a", 4)
        assert await versions(store, "a") == [4]
        assert await play(store, DeleteCredential("a", next(IDS), LIMITS)) is True
        assert await versions(other, "a") == []
        assert await other.wallet.list_credentials() == []
        gone = await other.wallet.get_credential("a")
        assert gone is not None
        assert (gone.version, gone.deleted) == (4, True)
        assert (await put(other, "a", 5)).version == 5

    async def test_they_are_listed_by_alias(self, open_store: OpenStore) -> None:
        store = await open_store()
        for alias in ("b", "a", "B", "ä"):
            await put(store, alias)
        listed = [state.alias for state in await store.wallet.list_credentials()]
        assert listed == ["B", "a", "b", "ä"]

    async def test_two_who_seal_one_version_do_not_both_win(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await put(store, "a")
        again = [put(each, "a", 2) for each in (store, other) * 3]
        ends = await asyncio.gather(*again, return_exceptions=True)
        assert sum(isinstance(end, CredentialState) for end in ends) == 1
        assert sum(isinstance(end, VersionMismatch) for end in ends) == 5

    async def test_many_changes_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        outcomes = await attempt(
            store,
            putting(sealed("a")),
            putting(sealed("b")),
            putting(sealed("a", 2), rotates=True),
            DeleteCredential("b", next(IDS), LIMITS),
            putting(sealed("b", 2)),
            putting(sealed("b", 2)),
            RetireCredential("a", 2, next(IDS), LIMITS),
            CountOpenings({"a": 2, "b": 3, "none": 1}),
        )
        assert isinstance(outcomes[5], VersionMismatch)
        assert await versions(store, "a") == await versions(store, "b") == [2]
        assert [state.opened for state in await store.wallet.list_credentials()] == [2, 3]
        verbs = [entry.subject.split("/")[3] for entry in await read_all(store)]
        assert verbs == ["put", "put", "rotated", "deleted", "put", "retired"]

    async def test_versions_under_other_keys_are_listed_page_by_page(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for alias in ("b", "a"):
            await put(store, alias)
            await put(store, alias, 2, rotates=True, key_id="k2")
            await put(store, alias, 3, rotates=True, key_id="k3")
        page = store.wallet.list_versions_under_other_keys
        assert [row[:2] for row in await page("k3", ("", 0), 10)] == [("a", 2), ("b", 2)]
        assert [row[:2] for row in await page("k1", ("", 0), 3)] == [("a", 2), ("a", 3), ("b", 2)]
        assert [row[:2] for row in await page("k1", ("b", 2), 3)] == [("b", 3)]
        assert await page("k1", ("b", 3), 3) == []

    async def test_a_rewrap_changes_the_wrapped_key_alone(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await put(store, "a")
        (row,) = await store.wallet.get_credential_versions("a")
        now = row._replace(key_id="k2", wrapped_key=b"another")
        rewrap = RewrapCredential(row.wrapped_key, now, next(IDS), LIMITS)
        assert await play(other, rewrap) is True
        assert await play(store, RewrapCredential(row.wrapped_key, now, next(IDS), LIMITS)) is False
        (found,) = await store.wallet.get_credential_versions("a")
        assert found == now._replace(wrapped_at_ms=found.wrapped_at_ms)
