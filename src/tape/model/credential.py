"""A credential: a sealed value by its alias, in versions, and the moves that change them.

A version is sealed for its alias and number before the move that adds it, so the move refuses with
VersionMismatch if another one was faster, and whoever asked seals anew. At most two versions of an
alias have a row: the current one and, after a rotation, the one before it, which is good until the
next rotation or until it is retired. Numbers go on after a deletion, so no version comes back.

Every change is an entry with alias, versions and the id of the key-encryption key, and nothing of
the value. Openings are counted on the row, and are no entries.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from tape.errors import InvalidArgument, NoCredential, VersionMismatch
from tape.model.entry import EntryDraft, Kind
from tape.model.move import Decision, Need, State, Table, delete, save
from tape.model.names import check_name
from tape.model.subject import check_length
from tape.model.subjects import wallet
from tape.settings import Limits


class CredentialForm(StrEnum):
    TEXT = "text"
    OBJECT = "object"


class Credential(NamedTuple):
    """An alias and which of its versions are good. A deleted one keeps its row, for its number;
    `previous_version` is 0 where there is none."""

    alias: str
    version: int
    previous_version: int = 0
    created_at_ms: int = 0
    changed_at_ms: int = 0
    deleted: bool = False
    opened: int = 0

    @property
    def versions(self) -> tuple[int, ...]:
        """Those that are good, the current one first."""
        if self.deleted:
            return ()
        return tuple(filter(None, (self.version, self.previous_version)))


class CredentialVersion(NamedTuple):
    """A value under a data key of its own, and that under the key-encryption key `key_id`."""

    alias: str
    version: int
    form: str
    key_id: str
    wrapped_key: bytes
    nonce: bytes
    ciphertext: bytes
    wrapped_at_ms: int = 0

    def __repr__(self) -> str:
        return f"CredentialVersion({self.alias!r}, {self.version}, key {self.key_id!r})"


class CredentialState(NamedTuple):
    """What may be known of a credential. `previous_version` is 0, and `previous_key_id` empty,
    unless a rotation has left one that is still good; `form` is text or object; `opened` counts
    openings."""

    alias: str
    version: int
    previous_version: int
    form: str
    key_id: str
    created_at_ms: int
    changed_at_ms: int
    opened: int
    previous_key_id: str = ""


CREDENTIALS = Table("credentials", Credential, lambda row: row.alias)
CREDENTIAL_VERSIONS = Table("credential_versions", CredentialVersion, lambda row: row[:2])

RESERVED: Final = "rewrap"
"""`/api/wallet/rewrap` is the operation, and no credential of that alias."""


def check_alias(alias: str, limits: Limits, *, field: str = "alias") -> str:
    check_name(alias, limits, field=field, required=True)
    if alias == RESERVED:
        message = f"{alias!r} names an operation of the wallet: choose another alias"
        raise InvalidArgument(message, field=field)
    check_length(wallet("rewrapped", alias), limits)
    return alias


def no_credential(alias: str) -> NoCredential:
    return NoCredential(f"the wallet has no credential {alias!r}: add it with tape wallet put")


class PutCredential:
    """Make a sealed version the current one. The version before is refused from then on, unless it
    is a rotation, which `keeps_previous`."""

    __slots__ = ("_event_id", "_keeps_previous", "_new", "weight")

    def __init__(
        self,
        new: CredentialVersion,
        event_id: str,
        limits: Limits,
        *,
        keeps_previous: bool = False,
    ) -> None:
        check_alias(new.alias, limits)
        self._new = new
        self._event_id = event_id
        self._keeps_previous = keeps_previous
        self.weight = 1024 + len(new.ciphertext)

    def needs(self) -> Iterable[Need]:
        yield Need(CREDENTIALS, self._new.alias)
        yield Need(CREDENTIAL_VERSIONS, (self._new.alias, self._new.version - 1))

    def decide(self, state: State) -> Decision[CredentialState]:
        new, now_ms = self._new, state.now_ms
        alias = new.alias
        before = state.get(CREDENTIALS, alias) or Credential(alias, 0, 0, now_ms, deleted=True)
        if self._keeps_previous and before.deleted:
            raise no_credential(alias)
        _refuse_moved(before, new.version - 1)
        previous = None
        if self._keeps_previous:
            previous = state.get(CREDENTIAL_VERSIONS, (alias, before.version))
        now = before._replace(
            version=new.version,
            previous_version=before.version if self._keeps_previous else 0,
            created_at_ms=now_ms if before.deleted else before.created_at_ms,
            changed_at_ms=now_ms,
            deleted=False,
        )
        gone = [one for one in before.versions if one not in now.versions]
        added = new._replace(wrapped_at_ms=now_ms)
        verb = "rotated" if self._keeps_previous else "put"
        reply = credential_state(now, added, previous)
        return Decision(
            lambda _place: reply,
            [_draft(self._event_id, verb, now, key_id=new.key_id)],
            [
                *(delete(CREDENTIAL_VERSIONS, (alias, version)) for version in gone),
                save(CREDENTIALS, now),
                save(CREDENTIAL_VERSIONS, added),
            ],
        )


class RetireCredential:
    """Refuse the version before the current one, which is `version`, from now on. What changes
    nothing leaves no entry."""

    __slots__ = ("_alias", "_event_id", "_version", "weight")

    def __init__(self, alias: str, version: int, event_id: str, limits: Limits) -> None:
        self._alias = check_alias(alias, limits)
        self._version = version
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(CREDENTIALS, self._alias)
        yield Need(CREDENTIAL_VERSIONS, (self._alias, self._version))

    def decide(self, state: State) -> Decision[CredentialState]:
        alias = self._alias
        before = state.get(CREDENTIALS, alias)
        if before is None or before.deleted:
            raise no_credential(alias)
        _refuse_moved(before, self._version)
        current = state.get(CREDENTIAL_VERSIONS, (alias, self._version))
        if not before.previous_version:
            reply = credential_state(before, current, None)
            return Decision(lambda _place: reply)
        now = before._replace(previous_version=0, changed_at_ms=state.now_ms)
        retired = credential_state(now, current, None)
        return Decision(
            lambda _place: retired,
            [_draft(self._event_id, "retired", now, key_id=retired.key_id)],
            [
                delete(CREDENTIAL_VERSIONS, (alias, before.previous_version)),
                save(CREDENTIALS, now),
            ],
        )


class DeleteCredential:
    """Forget the values of an alias; False if there is none."""

    __slots__ = ("_alias", "_event_id", "weight")

    def __init__(self, alias: str, event_id: str, limits: Limits) -> None:
        self._alias = check_alias(alias, limits)
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(CREDENTIALS, self._alias)

    def decide(self, state: State) -> Decision[bool]:
        before = state.get(CREDENTIALS, self._alias)
        if before is None or before.deleted:
            return Decision(lambda _place: False)
        now = before._replace(previous_version=0, changed_at_ms=state.now_ms, deleted=True)
        gone = [delete(CREDENTIAL_VERSIONS, (self._alias, one)) for one in before.versions]
        draft = _draft(self._event_id, "deleted", now)
        return Decision(lambda _place: True, [draft], [*gone, save(CREDENTIALS, now)])


class RewrapCredential:
    """Put the data key of one version under another key-encryption key, if it is still under `was`;
    False if it is not: then another one was faster, or the version is not good any more."""

    __slots__ = ("_event_id", "_now", "_was", "weight")

    def __init__(self, was: bytes, now: CredentialVersion, event_id: str, limits: Limits) -> None:
        check_alias(now.alias, limits)
        self._was = was
        self._now = now
        self._event_id = event_id
        self.weight = 1024 + len(now.ciphertext)

    def needs(self) -> Iterable[Need]:
        yield Need(CREDENTIALS, self._now.alias)
        yield Need(CREDENTIAL_VERSIONS, self._now[:2])

    def decide(self, state: State) -> Decision[bool]:
        row = state.get(CREDENTIAL_VERSIONS, self._now[:2])
        credential = state.get(CREDENTIALS, self._now.alias)
        if row is None or credential is None or row.wrapped_key != self._was:
            return Decision(lambda _place: False)
        now = row._replace(
            key_id=self._now.key_id,
            wrapped_key=self._now.wrapped_key,
            wrapped_at_ms=state.now_ms,
        )
        draft = _draft(
            self._event_id, "rewrapped", credential, version=now.version, key_id=now.key_id
        )
        return Decision(lambda _place: True, [draft], [save(CREDENTIAL_VERSIONS, now)])


class CountOpenings:
    """Add openings to the rows of their aliases. It makes no entry."""

    __slots__ = ("_openings", "weight")

    def __init__(self, openings: Mapping[str, int]) -> None:
        self._openings = dict(openings)
        self.weight = 256 * (1 + len(openings))

    def needs(self) -> Iterable[Need]:
        for alias in self._openings:
            yield Need(CREDENTIALS, alias)

    def decide(self, state: State) -> Decision[None]:
        rows = ((state.get(CREDENTIALS, alias), times) for alias, times in self._openings.items())
        changes = [
            save(CREDENTIALS, row._replace(opened=row.opened + times))
            for row, times in rows
            if row is not None
        ]
        return Decision(lambda _place: None, changes=changes)


def _refuse_moved(credential: Credential, version: int) -> None:
    if credential.version != version:
        raise VersionMismatch(
            f"credential {credential.alias!r} is at version {credential.version}, not {version}"
        )


def credential_state(
    row: Credential, current: CredentialVersion | None, previous: CredentialVersion | None
) -> CredentialState:
    return CredentialState(
        row.alias,
        row.version,
        row.previous_version,
        current.form if current else "",
        current.key_id if current else "",
        row.created_at_ms,
        row.changed_at_ms,
        row.opened,
        previous.key_id if previous else "",
    )


def _draft(
    event_id: str, verb: str, row: Credential, *, key_id: str = "", version: int = 0
) -> EntryDraft:
    """`version` is the one that is told of, if that is not the current one."""
    payload = {
        "alias": row.alias,
        "version": version or row.version,
        "previous_version": row.previous_version,
        "key_id": key_id,
    }
    subject = wallet(verb, row.alias)
    return EntryDraft(event_id, Kind.WALLET.value, subject, orjson.dumps(payload).decode())
