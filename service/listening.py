"""Where a program listens: whether the address can be had, before anything else is opened, and whether others can reach it."""

import ipaddress
import socket

from service.errors import ConfigurationError


def is_loopback(host: str) -> bool:
    """Say whether an address or name can only mean this machine (RFC 6761, 6.3, for the name)."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_free_port(host: str, port: int, advice: str) -> None:
    """Check that an address can be bound; port 0 always can.

    Raises:
        ConfigurationError: it cannot; the message ends with the advice.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as exc:
        raise ConfigurationError(f"{host!r} is not an address of this machine ({exc}).") from exc
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as exc:
            raise ConfigurationError(f"{host}:{port} cannot be bound ({exc.strerror}). {advice}") from exc
