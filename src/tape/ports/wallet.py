"""What a store tells of credentials: `store.wallet`. All values in it are sealed."""

from typing import Protocol

from tape.model.credential import Credential, CredentialState, CredentialVersion


class WalletStore(Protocol):
    async def get_credential(self, alias: str) -> Credential | None:
        """Deleted or not; None if there never was one."""

    async def get_credential_versions(self, alias: str) -> list[CredentialVersion]:
        """Those that are good, the current one first; none of a deleted credential."""

    async def list_credentials(self) -> list[CredentialState]:
        """By alias, without those that are deleted."""

    async def list_versions_under_other_keys(
        self, key_id: str, after: tuple[str, int], limit: int
    ) -> list[CredentialVersion]:
        """Versions after this alias and number whose data key is under another key-encryption key
        than this, in order."""
