"""The calls that send a secret: refused before it leaves, where others could read along.

The server refuses them too, but by then the secret has crossed the network.
"""

from tape.client.server import Server
from tape.errors import Unsafe
from tape.model.credential import CredentialState
from tape.wallet.operations import WalletOperations


class SecretCalls:
    def __init__(self, wallet: WalletOperations, server: Server) -> None:
        self._wallet = wallet
        self._server = server

    async def put_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        self._check()
        return await self._wallet.put_credential(alias, value, form=form)

    async def rotate_credential(self, alias: str, value: str, *, form: str = "") -> CredentialState:
        self._check()
        return await self._wallet.rotate_credential(alias, value, form=form)

    def _check(self) -> None:
        address = self._server.address
        if not address.is_private:
            raise Unsafe(
                f"the credential would cross the network to {address.target} unencrypted, so it "
                "was not sent: use tapes://, which insecure=1 does not replace here"
            )
