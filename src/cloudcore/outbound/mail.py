"""The URL of a smarthost, and the error for mail that was not sent."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit


class MailRefused(Exception):
    """A message was not sent; the text has the reason, without credentials."""

    def __init__(
        self,
        message: str,
        *,
        is_permanent: bool = False,
        refuses_address: bool = False,
        code: int = 0,
    ) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        """True if a retry would not help."""
        self.refuses_address = refuses_address
        """True if the address accepts no mail at all, whatever the message."""
        self.code = code
        """Code of the server's reply; 0 if there was none."""


_PORTS: Final = {"smtp": 25, "smtps": 465}


class SmtpUrlError(ValueError):
    """A URL is not a smarthost's; the message has the reason, without the password."""


class Smarthost(NamedTuple):
    """The operator's mail server, which relays our mail."""

    scheme: Literal["smtp", "smtps"]
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Smarthost({self.scheme}://{self.host}:{self.port})"


def parse_smarthost(url: str) -> Smarthost:
    """Parse ``smtp://[USER:PASSWORD@]HOST[:PORT]``, or ``smtps://…``.

    Raise `SmtpUrlError` if the URL has another form.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SmtpUrlError("write it as smtp://USER:PASSWORD@HOST:PORT") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path not in ("", "/"):
        raise SmtpUrlError("write it as smtp://USER:PASSWORD@HOST:PORT, or smtps://…")
    if parts.query or parts.fragment:
        raise SmtpUrlError("it has a query or a fragment")
    return Smarthost(
        "smtps" if parts.scheme == "smtps" else "smtp",
        parts.hostname,
        port or _PORTS[parts.scheme],
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )
