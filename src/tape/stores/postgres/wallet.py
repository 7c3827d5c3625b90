"""Credentials in Postgres; see `ports.wallet`."""

from tape.model.credential import Credential, CredentialState, CredentialVersion
from tape.stores.postgres.pool import PostgresPool


class PostgresWallet:
    def __init__(self, reads: PostgresPool) -> None:
        self._reads = reads

    async def get_credential(self, alias: str) -> Credential | None:
        return await self._reads.row(Credential, "get_credential", alias)

    async def get_credential_versions(self, alias: str) -> list[CredentialVersion]:
        return await self._reads.rows(CredentialVersion, "get_credential_versions", alias)

    async def list_credentials(self) -> list[CredentialState]:
        return await self._reads.rows(CredentialState, "list_credentials")

    async def list_versions_under_other_keys(
        self, key_id: str, after: tuple[str, int], limit: int
    ) -> list[CredentialVersion]:
        name = "list_versions_under_other_keys"
        return await self._reads.rows(CredentialVersion, name, key_id, *after, limit)
