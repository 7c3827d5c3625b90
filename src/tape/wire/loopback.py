"""Which hosts are this machine, by their names alone."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """A name that only this machine's owner controls, or an address that says so itself."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
