"""Which keys of a document go together: by source, mode, verifier and control.

A table has a row for each choice: the keys that it needs and those that it may have. What another
row has and this one has not is foreign to it. The reader and the JSON schema go by these tables.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tape.model.subscription_spec import Control, SourceKind, VerifyType

Choice = tuple[str, ...]
"""The words that choose a row, such as `("nats", "pull")`."""


class KeyRow(NamedTuple):
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.needs + self.may


KeyTable = Mapping[Choice, KeyRow]

SOURCE_KEYS: Final[KeyTable] = {
    (SourceKind.NATS, "pull"): KeyRow(("auth", "stream", "consumer")),
    (SourceKind.KAFKA, "pull"): KeyRow(("auth", "topic", "group")),
    (SourceKind.PUBSUB, "pull"): KeyRow(("auth", "subscription")),
    (SourceKind.FILE, "pull"): KeyRow(("folder",), ("pattern",)),
    (SourceKind.PUBSUB, "push"): KeyRow(),
    (SourceKind.WEBHOOK, "push"): KeyRow(),
}
"""The sources, and the modes that each has."""

MODE_KEYS: Final[KeyTable] = {
    ("pull",): KeyRow(("activation",), ("cadence",)),
    ("push",): KeyRow(("ingress",)),
}

ACTIVATION_KEYS: Final[KeyTable] = {
    ("continuous",): KeyRow(),
    ("scheduled",): KeyRow(("cadence",)),
}

_SIGNED: Final = ("header", "secret")
VERIFY_KEYS: Final[KeyTable] = {
    (VerifyType.HMAC_SHA256,): KeyRow(_SIGNED, ("scheme", "tolerance_secs")),
    (VerifyType.BEARER,): KeyRow(("secret",)),
    (VerifyType.PUBSUB_OIDC,): KeyRow(("audience", "service_account")),
    (VerifyType.HMAC,): KeyRow(
        _SIGNED,
        (
            "parts", "algorithm", "encoding", "prefix", "secret_encoding", "timestamp_header",
            "tolerance_secs", "public_url",
        ),
    ),
    (VerifyType.TWILIO,): KeyRow(("secret", "public_url")),
    (VerifyType.API_KEY,): KeyRow(_SIGNED),
    (VerifyType.BASIC,): KeyRow(("secret",)),
    (VerifyType.JWT,): KeyRow(("jwks_url", "issuer", "audience")),
    (VerifyType.AWS_SNS,): KeyRow(("topic_arns",), ("confirm",)),
}  # fmt: skip

_FREE: Final = KeyRow((), ("allowed",))
CONTROL_KEYS: Final[KeyTable] = {
    (Control.PLAYBOOK,): KeyRow(("allowed",)),
    (Control.EXECUTION_POOL,): KeyRow(("allowed",)),
    (Control.PRIORITY,): KeyRow(("map",)),
    (Control.IDEMPOTENCY_KEY,): _FREE,
    (Control.CONTENT_TYPE,): _FREE,
    (Control.SCHEMA_HINT,): _FREE,
}

SPOOL_NEEDS: Final = ("backend", "bucket")
"""What a spool needs unless its mode is off."""

SPOOL_CONDITIONS: Final[tuple[dict[str, Any], ...]] = (
    {
        "if": {
            "properties": {"mode": {"enum": ["buffer_and_ack", "hybrid"]}},
            "required": ["mode"],
        },
        "then": {"required": list(SPOOL_NEEDS)},
    },
    {
        "if": {
            "properties": {
                "ordering": {"const": "global"},
                "drain": {
                    "properties": {"on_recovery": {"const": "interleave"}},
                    "required": ["on_recovery"],
                },
            },
            "required": ["ordering", "drain"],
        },
        "then": False,
    },
)
"""The rules of a spool, as JSON schema."""

PUSHED: Final[dict[str, Any]] = {
    "if": {"properties": {"mode": {"const": "push"}}, "required": ["mode"]},
    "then": {
        "properties": {
            "spool": {
                "if": {"not": {"required": ["mode"]}},
                "then": {"required": list(SPOOL_NEEDS)},
            },
            "runtime": {"properties": {"batch": False, "timeout_ms": False}},
        }
    },
}
"""What a push has by default, and what it cannot have, as JSON schema."""


def missing_keys(table: KeyTable, choice: Choice, given: set[str]) -> Iterator[str]:
    return (key for key in table[choice].needs if key not in given)


def foreign_keys(table: KeyTable, choice: Choice, given: set[str]) -> Iterator[tuple[str, str]]:
    """Keys that belong to other rows only, and the words that choose those rows."""
    own = table[choice].keys
    for key in all_keys(table):
        if key in given and key not in own:
            yield key, " or ".join(_owners(table, choice, key))


def all_keys(table: KeyTable) -> list[str]:
    return list(dict.fromkeys(key for row in table.values() for key in row.keys))


def _owners(table: KeyTable, choice: Choice, key: str) -> list[str]:
    """The first words in which the owners differ from the choice: their mode, if another mode of
    the same source has the key."""
    owners = [other for other, row in table.items() if key in row.keys]
    near = [other for other in owners if other[0] == choice[0]]
    place = 1 if near else 0
    return list(dict.fromkeys(str(other[place]) for other in near or owners))


def conditions(names: str, table: KeyTable) -> dict[str, Any]:
    """The table as JSON schema: `names` are the keys that choose the row."""
    every, chosen_by = all_keys(table), names.split()
    return {
        "allOf": [
            {
                "if": {
                    "properties": {
                        name: {"const": str(word)}
                        for name, word in zip(chosen_by, choice, strict=True)
                    },
                    "required": chosen_by,
                },
                "then": {
                    "required": list(row.needs),
                    "properties": {key: False for key in every if key not in row.keys},
                },
            }
            for choice, row in table.items()
            if row.needs or set(every) - set(row.keys)
        ]
    }


def allowed_modes(source: SourceKind) -> list[str]:
    return [mode for kind, mode in SOURCE_KEYS if kind == source]
