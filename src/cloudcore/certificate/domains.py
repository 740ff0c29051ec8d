"""The domains of a certificate, and the operator's grants of domains to accounts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput, invalid_field

MOST_DOMAINS: Final = 100
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?:\*\.(?={_LABEL}\.))?(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")
_MOST_CHARACTERS: Final = 253


def check_domains(domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains in lower case, without duplicates and final dots, in their order.

    Raise `InvalidInput` if there is none, there are too many, or one is neither a host name nor a
    wildcard such as ``*.example.com``.
    """
    # Some non-ASCII characters have ASCII lower-case forms, so only ASCII is lowered.
    lowered = (each.lower() if each.isascii() else each for each in domains)
    found = tuple(dict.fromkeys(each.removesuffix(".") for each in lowered))
    if not 1 <= len(found) <= MOST_DOMAINS:
        words = f"a certificate is for 1 to {MOST_DOMAINS} domains, not {len(found)}"
        raise invalid_field("domains", words, "count")
    for domain in found:
        if problem := _problem(domain):
            raise invalid_field("domains", f"{domain!r} {problem}", "invalid")
    return found


def base_of(domain: str) -> str:
    """Return the domain to prove for `domain`: for a wildcard, `domain` without its ``*.``."""
    return domain.removeprefix("*.")


def _problem(domain: str) -> str:
    if not domain.isascii():
        return "is not in the form of DNS: write it with xn--"
    if "*" in domain.removeprefix("*."):
        return "has a * elsewhere than as its whole first label"
    if _DOMAIN.fullmatch(domain) is None or len(domain) > _MOST_CHARACTERS:
        return "is no domain such as www.example.com or *.example.com"
    return ""


EVERYBODY: Final = "*"


class DomainGrant(NamedTuple):
    """A domain and all its subdomains, granted to an account."""

    domain: str
    account: str
    """The account's handle or id, or `EVERYBODY`."""


class GrantError(ValueError):
    """A grant's text is malformed."""


def parse_grants(entries: Sequence[str]) -> tuple[DomainGrant, ...]:
    """Parse grants such as ``corp.example=*`` and ``shop.example=acme``.

    Raise `GrantError` if an entry is not of this form.
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
        found.append(DomainGrant(plain.removeprefix("x."), account))
    return tuple(found)


class DomainGrants:
    """The grants of an install."""

    def __init__(self, grants: Sequence[DomainGrant]) -> None:
        self._grants = tuple(grants)

    def allow(self, domain: str, account_id: str, handle: str) -> bool:
        """Return True if an account may have a certificate for a domain.

        The most specific grants decide: a subdomain that is granted separately may be used only by
        the accounts of those grants. So a wildcard is not allowed if it covers a name that is
        granted only to other accounts.
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
    """Return True if `domain`, without its ``*.``, is one of `zones` or a subdomain of one."""
    base = base_of(domain)
    return any(base == zone or base.endswith(f".{zone}") for zone in zones)
