"""The operations of the bus at a server."""

from collections.abc import AsyncGenerator, Sequence

from tape.bus import FollowQuery
from tape.calls.journal import JOURNAL
from tape.calls.ledger import LEDGER
from tape.calls.outbox import OUTBOX
from tape.calls.reactions import REACTIONS
from tape.calls.runs import RUNS
from tape.calls.sessions import SESSIONS
from tape.calls.subscriptions import SUBSCRIPTIONS
from tape.calls.tasks import TASKS
from tape.calls.values import VALUES
from tape.calls.wallet import WALLET
from tape.client.address import parse_address
from tape.client.remote import Sender, by_hand, remote
from tape.client.remote_writes import RemoteWrites
from tape.client.secret_calls import SecretCalls
from tape.client.server import Server
from tape.journal.follow import Page
from tape.model.event import NewEvent, Recorded
from tape.ports.store import JournalInfo
from tape.reactions.tasks import TaskOperations
from tape.runs.operations import RunOperations
from tape.settings import Settings
from tape.wallet.operations import WalletOperations
from tape.wire import mapping_entries
from tape.wire.v1 import tape_pb2 as pb


class GrpcBus:
    """Tape at a server. Open it on the event loop it will be used on."""

    def __init__(
        self, server: Server, settings: Settings, server_info: pb.GetJournalInfoResponse
    ) -> None:
        """What is refused before it is sent is what the server would refuse: it tells its limits.
        Others can reach the server unless it says that they cannot.
        """
        self._server = server
        self._rpc = server.rpc
        self._settings = settings
        self._exposed = server_info.exposed
        sender = Sender(server, settings.writer.retry_for_s)
        writes = RemoteWrites(sender)
        self._journal = remote(JOURNAL, sender)
        self.values = remote(VALUES, sender)
        self.sessions = remote(SESSIONS, sender)
        self.reactions = remote(REACTIONS, sender)
        self.tasks = remote(
            TASKS, sender, by_hand(TaskOperations.settle_tasks, writes.settle_tasks)
        )
        self.runs = remote(
            RUNS,
            sender,
            by_hand(RunOperations.begin_run, writes.begin_run),
            by_hand(RunOperations.extend_run, writes.extend_run),
            by_hand(RunOperations.change_run, writes.change_run),
            limits=mapping_entries.limits_from_wire(server_info, settings.limits),
        )
        self.ledger = remote(LEDGER, sender)
        self.outbox = remote(OUTBOX, sender)
        secrets = SecretCalls(remote(WALLET, sender), server)
        self.wallet = remote(
            WALLET,
            sender,
            by_hand(WalletOperations.put_credential, secrets.put_credential),
            by_hand(WalletOperations.rotate_credential, secrets.rotate_credential),
        )
        self.subscriptions = remote(SUBSCRIPTIONS, sender)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def exposed(self) -> bool:
        return self._exposed

    @classmethod
    async def open(cls, url: str, token: str, settings: Settings) -> "GrpcBus":
        """A server that is not there, or does not let us in, is found out here."""
        address = parse_address(url, with_token=bool(token))
        server = Server(address, token)
        try:
            return cls(server, settings, await _ask_for_info(server))
        except BaseException:
            await server.close()
            raise

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        return await self._journal.record_events(events)

    def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        return self._journal.follow(query)

    async def info(self) -> JournalInfo:
        return mapping_entries.info_from_wire(await _ask_for_info(self._server))

    async def close(self) -> None:
        await self._server.close()


async def _ask_for_info(server: Server) -> pb.GetJournalInfoResponse:
    return await server.call(server.rpc.GetJournalInfo, pb.GetJournalInfoRequest())
