"""The settings of mail that accounts send: where what mail servers send back arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from registry.acme_settings import parse_address

_DOMAIN: Final = re.compile(
    r"(?=.{1,190}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+(?![0-9]+\Z)[a-z0-9-]{2,63}"
)
"""So long that an address of it has room for its local part (RFC 5321 §4.5.3.1.3)."""


@dataclass(frozen=True, slots=True)
class EmailSettings:
    """Where what mail servers send back arrives."""

    bounce_domain: str = ""
    """Domain, such as ``bounces.example.com``, of the return paths of messages; empty: reports of
    mail that could not be delivered go nowhere."""
    bounce_listen: str = ""
    """``host:port`` where mail for `bounce_domain` is taken; empty: nowhere."""

    @property
    def bounce_address(self) -> tuple[str, int] | None:
        """Return host and port of `bounce_listen`, or None."""
        return parse_address(self.bounce_listen)

    @property
    def problem(self) -> str:
        """Return what is wrong, with the setting before it, or an empty string."""
        if self.bounce_domain and _DOMAIN.fullmatch(self.bounce_domain) is None:
            return (
                f"bounce_domain: {self.bounce_domain!r} is no domain such as bounces.example.com,"
                " in lower case"
            )
        if self.bounce_listen and self.bounce_address is None:
            return f"bounce_listen: an address is HOST:PORT, not {self.bounce_listen!r}"
        if self.bounce_listen and not self.bounce_domain:
            return "bounce_listen needs bounce_domain, whose mail is taken"
        return ""
