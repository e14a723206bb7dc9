"""Looks at any address that it is given, and goes wherever that leads."""

import urllib.request

WITHIN_S = 5


def fetch(url: str) -> None:
    """Raises OSError or ValueError where nothing answers."""
    urllib.request.urlopen(url, timeout=WITHIN_S).close()  # noqa: S310 # that is the point
