"""The environment variables that Tape reads, and those that were probably meant for it."""

from collections.abc import Iterator, Mapping

VARIABLES = (
    "TAPE_BROKER_HOSTS", "TAPE_CONFIG", "TAPE_KAFKA_CONFIG", "TAPE_LEASE_MS", "TAPE_LEASE_OWNER",
    "TAPE_NATS_CREDENTIALS", "TAPE_NATS_PASSWORD", "TAPE_NATS_USER", "TAPE_STORE", "TAPE_TOKEN",
    "TAPE_TOKENS", "TAPE_URL", "TAPE_WEBHOOK_SECRET",
)  # fmt: skip


def misspelled(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each variable that has almost the name of one that Tape reads."""
    for name in environment:
        if name.upper().startswith("TAPE") and name not in VARIABLES:
            from difflib import get_close_matches  # rarely needed

            for meant in get_close_matches(name.upper(), VARIABLES, n=1, cutoff=0.8):
                yield f"{name} is set, and Tape does not read it. Did you mean {meant}?"
