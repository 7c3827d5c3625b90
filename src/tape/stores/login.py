"""What of a store's URL may be said to others."""

import re

UNSAID = "…"
_PARAMETERS = re.compile("[?#]")
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):").match


def scheme_of(url: str) -> str:
    """The scheme; "…" of what has none, as `host=h password=…` and `password@host/database`."""
    found = _SCHEME(url)
    return found[1] if found else UNSAID


def without_login(rest: str) -> str:
    """What follows the scheme, without the user, the password and the parameters.

    Where it cannot be told what belongs to a password, nothing is said.
    """
    place, *parameters = _PARAMETERS.split(rest, maxsplit=1)
    if "@" not in place and any("@" in text for text in parameters):
        return UNSAID  # a password with ? or # in it, or a parameter that has an address
    return place.rpartition("@")[2].lstrip("/") if "@" in place else place.removeprefix("//")
