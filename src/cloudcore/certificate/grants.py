"""Domains that the operator grants to accounts: their certificates need no proof by DNS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.certificate.domains import base_of, check_domains
from cloudcore.errors import InvalidInput

EVERYBODY: Final = "*"


class Grant(NamedTuple):
    """A domain with all below it, granted to an account."""

    domain: str
    account: str
    """Its handle or id, or `EVERYBODY`."""


class GrantError(ValueError):
    """The text of a grant is malformed."""


def parse_grants(entries: Sequence[str]) -> tuple[Grant, ...]:
    """Return the grants of entries such as ``corp.example=*`` and ``shop.example=acme``.

    Raises:
        GrantError: one is not of this form.

    """
    found = []
    for entry in entries:
        domain, _, account = (part.strip() for part in entry.partition("="))
        try:
            (plain,) = check_domains([f"x.{domain}"])
        except InvalidInput:
            plain = ""
        if not plain or not account or domain.startswith("*"):
            raise GrantError(f"{entry!r} is no DOMAIN=ACCOUNT such as corp.example=acme")
        found.append(Grant(plain.removeprefix("x."), account))
    return tuple(found)


class Grants:
    """The grants of an install."""

    def __init__(self, grants: Sequence[Grant] = ()) -> None:
        self._grants = tuple(grants)

    def allow(self, domain: str, account_id: str, handle: str) -> bool:
        """Return True if an account may have a certificate for a domain.

        The grant nearest to it decides: what is granted below another one is not of both. So a
        wildcard is not allowed that is also of a name granted to others alone.
        """
        base, names = base_of(domain), (account_id, handle, EVERYBODY)
        above = [each for each in self._grants if is_within(base, [each.domain])]
        nearest = max((len(each.domain) for each in above), default=0)
        if all(each.account not in names for each in above if len(each.domain) == nearest):
            return False
        if base == domain:
            return True
        covered = [each for each in self._grants if each.domain.partition(".")[2] == base]
        ours = {each.domain for each in covered if each.account in names}
        return all(each.domain in ours for each in covered)


def is_within(domain: str, zones: Sequence[str]) -> bool:
    """Return True if `domain`, or what its star is below, is one of `zones` or below one."""
    base = base_of(domain)
    return any(base == zone or base.endswith(f".{zone}") for zone in zones)
