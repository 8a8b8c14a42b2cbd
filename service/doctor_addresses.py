"""What `pointsman doctor` asks of an address before it asks whoever listens there: that a client can make one of it at all."""

from urllib.parse import urlsplit

import httpx

from service.errors import ConfigurationError


def require_address(text: str, name: str) -> None:
    """Refuse an address whose host or port no client takes.

    Raises:
        ConfigurationError: it is one. The message begins with `name`, and quotes nothing: a password may stand where the port belongs.
    """
    try:
        _ = urlsplit(text).port, httpx.URL(text).host
    except (ValueError, httpx.InvalidURL):
        said = "its host or its port is none. It must look like https://host.example:8000/path."
        raise ConfigurationError(f"{name} is not an address: {said}") from None
