"""The calls on credentials. Their values are in requests alone."""

from typing import Final

from tape.calls.call import Call, Noun, Pages, Repeat
from tape.calls.replies import Field, Listed
from tape.calls.role import Role
from tape.wallet.operations import SealedCredential, SealedVersion, WalletOperations
from tape.wire.codec import Each, Record
from tape.wire.records import CREDENTIAL_STATE
from tape.wire.v1 import tape_pb2 as pb

SEALED_CREDENTIAL: Final = Record(
    SealedCredential,
    pb.SealedCredential,
    held={"versions": Each(Record(SealedVersion, pb.SealedVersion), tuple)},
)

WALLET: Final[Noun[WalletOperations]] = Noun(
    lambda operations: operations.wallet,
    Call(
        "PutCredential",
        Role.ADMIN,
        WalletOperations.put_credential,
        CREDENTIAL_STATE,
        has_secret=True,
    ),
    Call(
        "RotateCredential",
        Role.ADMIN,
        WalletOperations.rotate_credential,
        CREDENTIAL_STATE,
        has_secret=True,
    ),
    Call(
        "RetireCredential",
        Role.ADMIN,
        WalletOperations.retire_credential,
        CREDENTIAL_STATE,
    ),
    Call(
        "ListCredentials",
        Role.ADMIN,
        WalletOperations.list_credentials,
        Listed("credentials", CREDENTIAL_STATE),
        pages=Pages("after_alias", lambda state: state.alias),
        repeat=Repeat.FREELY,
    ),
    Call(
        "DeleteCredential",
        Role.ADMIN,
        WalletOperations.delete_credential,
        Field("deleted", bool),
    ),
    Call(
        "RewrapCredentials",
        Role.ADMIN,
        WalletOperations.rewrap_credentials,
        Field("rewrapped", int),
    ),
    Call(
        "GetSealedCredential",
        Role.ADMIN,
        WalletOperations.get_sealed_credential,
        SEALED_CREDENTIAL,
        repeat=Repeat.FREELY,
    ),
)
