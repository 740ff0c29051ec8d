"""Settings of the mail of accounts: how it is sent, and where bounces are received."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Literal

from cloudcore.outbound.destinations import Allowed
from registry.settings.certificates import parse_address
from registry.settings.texts import HOST, SettingsError, allowed_destinations, listed

EmailSending = Literal["off", "direct", "smarthost"]

_DOMAIN: Final = re.compile(
    r"(?=.{1,190}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+(?![0-9]+\Z)[a-z0-9-]{2,63}"
)
"""A domain, short enough that an address in it has room for a local part (RFC 5321 §4.5.3.1.3)."""


@dataclass(frozen=True, slots=True)
class EmailSettings:
    """How the accounts' mail is sent, and where bounces are received.

    A property raises `SettingsError` if its setting is malformed.
    """

    email_sending: EmailSending = "off"
    """How the mail of accounts is sent: ``off``; ``direct``, to the mail servers of the recipients'
    domains; or ``smarthost``, by the mail server of `smtp_url`."""
    email_host_name: str = ""
    """Name with which this machine greets mail servers, the same as in the reverse DNS of its
    address; empty: the host of `public_url`."""
    email_allowed: str = ""
    """Networks, separated by commas, of internal mail servers that mail may be sent to, besides
    those on the public internet."""
    email_port: int = 25
    """Port of the recipients' mail servers; any other than 25 is for trials."""
    email_rate: int = 10
    """Messages per second that are accepted from a sending identity."""
    email_dedicated_ips: str = ""
    """Addresses of this machine, separated by commas, that accounts may get for their exclusive
    use, to send from."""
    bounce_domain: str = ""
    """Domain, such as ``bounces.example.com``, of the return paths of messages; empty: reports of
    mail that could not be delivered go nowhere."""
    bounce_listen: str = ""
    """``host:port`` where mail for `bounce_domain` is received; empty: none is received."""

    @property
    def bounce_address(self) -> tuple[str, int] | None:
        """Return host and port of `bounce_listen`; None if it is empty or malformed."""
        return parse_address(self.bounce_listen)

    @property
    def allowed(self) -> Allowed:
        """Return the networks of mail servers that may be used besides the public internet."""
        found = allowed_destinations("email_allowed", self.email_allowed)
        if found.origins:
            raise SettingsError("email_allowed lists networks such as 10.0.0.0/8, no URLs")
        return found

    @property
    def dedicated_ips(self) -> Sequence[str]:
        """Return the addresses that accounts may get for their exclusive use, each once."""
        try:
            found = [ip_address(each) for each in listed(self.email_dedicated_ips)]
        except ValueError as error:
            raise SettingsError(f"email_dedicated_ips lists addresses: {error}") from None
        for each in found:
            if each.is_unspecified or each.is_multicast or "%" in str(each):
                raise SettingsError(f"email_dedicated_ips: nothing can be sent from {each}")
        return tuple(dict.fromkeys(map(str, found)))

    def problem(self, smtp_url: str) -> str:
        """Return the first problem, with the setting's name before it, or an empty string.

        Raise `SettingsError` if a list is malformed.
        """
        if self.email_sending == "smarthost" and not smtp_url:
            return "email_sending smarthost needs smtp_url, the mail server"
        if self.email_host_name and HOST.fullmatch(self.email_host_name) is None:
            return f"email_host_name: {self.email_host_name!r} is no name such as mail.example.com"
        _ = self.allowed, self.dedicated_ips
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
