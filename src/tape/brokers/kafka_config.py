"""Settings of the Kafka client, SASL and TLS among them, from a file."""

from pathlib import Path
from typing import Final

from tape.errors import InvalidArgument
from tape.telemetry.secret_files import warn_of_readers

CONFIG_VARIABLE: Final = "TAPE_KAFKA_CONFIG"


def read_config(path: str) -> dict[str, str | int | bool]:
    """Client settings from a file of `name=value` lines; # starts a comment line."""
    settings: dict[str, str | int | bool] = {}
    if not path:
        return settings
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
        raise InvalidArgument(f"cannot be read: {reason}", field=CONFIG_VARIABLE) from None
    warn_of_readers(Path(path), "Kafka settings")
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:
                raise InvalidArgument(f"line {number} is not name=value", field=CONFIG_VARIABLE)
            settings[name.strip()] = value.strip()
    return settings
