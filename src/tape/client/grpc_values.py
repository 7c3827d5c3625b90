"""The operations on values over gRPC."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tape.client.again import until_answered
from tape.client.outliving import outliving
from tape.client.representable import representable
from tape.client.server import Server
from tape.errors import OutcomeUnknown, VersionMismatch
from tape.model.value import Author, Deleted, Value, ValueChange
from tape.wire import mapping_values, records
from tape.wire.v1 import tape_pb2 as pb


class GrpcValues:
    def __init__(self, server: Server, retry_for_s: float) -> None:
        self._server = server
        self._rpc = server.rpc
        self._retry_for_s = retry_for_s

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value:
        """With a version and an id of the call, one that was cut off is sent again for a while."""
        with representable():
            request = mapping_values.write_to_wire(namespace, key, value_json, if_version, author)
        cut_off: list[OutcomeUnknown] = []

        async def send() -> pb.ValueRecord:
            try:
                return await self._server.call(self._rpc.WriteValue, request, writes=True)
            except OutcomeUnknown as error:
                cut_off.append(error)
                raise

        known = bool(author.request_id) and if_version >= 0
        try:
            written = await until_answered(send, self._retry_for_s if known else 0)
        except VersionMismatch:
            if cut_off:  # it may be this call's own version that another has replaced since
                raise cut_off[0] from None
            raise
        return records.VALUE.from_wire(written)

    async def get_value(self, namespace: str, key: str) -> Value | None:
        with representable():
            request = pb.GetValueRequest(namespace=namespace, key=key)
        return mapping_values.found_from_wire(await self._server.call(self._rpc.GetValue, request))

    async def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        """One by one; the server bounds what it holds."""
        del max_bytes

        def ask() -> pb.WatchValueRequest:
            return pb.WatchValueRequest(namespace=namespace, key=key, from_version=from_version)

        async with aclosing(outliving(self._server, self._rpc.WatchValue, ask)) as messages:
            async for message in messages:
                from_version = message.value.version
                yield records.VALUE_CHANGE.from_wire(message)

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted:
        with representable():
            request = mapping_values.delete_to_wire(namespace, key, author)
        deleted = await self._server.call(self._rpc.DeleteValue, request, writes=True)
        return records.DELETED.from_wire(deleted)

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        """It may hold fewer than `limit` although there are more; none is the end."""
        with representable():
            request = pb.ListValuesRequest(namespace=namespace, after_key=after_key, limit=limit)
        return mapping_values.values_from_wire(
            await self._server.call(self._rpc.ListValues, request)
        )

    async def list_namespaces(self, after: str, limit: int) -> list[str]:
        """It may hold fewer than `limit` although there are more; none is the end."""
        with representable():
            request = pb.ListNamesRequest(after=after, limit=limit)
        return list((await self._server.call(self._rpc.ListNamespaces, request)).names)
