"""Values in Postgres; see `ports.values`."""

from tape.model.value import Value
from tape.stores.postgres.pool import PostgresPool


class PostgresValues:
    def __init__(self, reads: PostgresPool) -> None:
        self._reads = reads

    async def get_value(self, namespace: str, key: str) -> Value | None:
        return await self._reads.row(Value, "get_value", namespace, key)

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        return await self._reads.rows(Value, "list_values", namespace, after_key, limit)

    async def list_namespaces(self, after: str, limit: int) -> list[str]:
        return await self._reads.rows(str, "list_namespaces", after, limit)
