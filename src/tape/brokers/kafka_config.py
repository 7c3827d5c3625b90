"""Settings of the Kafka client, SASL and TLS among them: of a file, or of a credential.

Who may put a credential must not thereby run programs here, load libraries or have secrets logged,
so such settings of a credential are refused. A file is this process's own.
"""

import re
from pathlib import Path
from typing import Final

from tape.brokers.credential_fields import CredentialFields
from tape.errors import InvalidArgument
from tape.telemetry.secret_files import warn_of_readers

CONFIG_VARIABLE: Final = "TAPE_KAFKA_CONFIG"

_NAME: Final = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)+").fullmatch
"""No callback and no level of logging is called like that."""
_DANGEROUS: Final = {
    "plugin.library.paths": "loads a library into this process",
    "ssl.engine.location": "loads a library into this process",
    "ssl.provider.location": "loads a library into this process",
    "ssl.providers": "loads a library into this process",
    "sasl.kerberos.kinit.cmd": "runs a program",
    "test.mock.num.brokers": "makes a cluster that is none",
    "test.mock.broker.rtt": "makes a cluster that is none",
}

ClientSettings = dict[str, str | int | float | bool]


def read_settings(given: CredentialFields) -> ClientSettings:
    """Client settings from a credential, for publishing and for a source. NoCredential, which
    repeats no value, if one is none that a credential may have."""
    for name, setting in given.fields.items():
        if why := _DANGEROUS.get(name):
            raise given.refused(name, f"{why}: leave it out")
        if not _NAME(name):
            raise given.refused(name, "is not a setting that a credential may have")
        if not isinstance(setting, str | int | float):
            raise given.refused(name, "is not a text, a number, true or false")
    return {**given.fields}


def read_config(path: str) -> ClientSettings:
    """Client settings from a file of `name=value` lines; # starts a comment line."""
    settings: ClientSettings = {}
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
