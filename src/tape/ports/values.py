"""What a store tells of values: `store.values`."""

from typing import Protocol

from tape.model.value import Value


class ValueStore(Protocol):
    async def get_value(self, namespace: str, key: str) -> Value | None: ...

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        """Live values by key, after `after_key`."""

    async def list_namespaces(self, after: str, limit: int) -> list[str]:
        """Namespaces that hold a live value: by name, after `after`."""
