"""The names that a certificate is for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cloudcore.errors import InvalidInput

MOST_DOMAINS: Final = 100
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?:\*\.(?={_LABEL}\.))?(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")
_MOST_CHARACTERS: Final = 253


def check_domains(domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains in lower case, each once, in their order.

    Raises:
        InvalidInput: there is none, there are too many, or one is no name of a host.

    """
    # Some characters that are not of ASCII become such in lower case.
    lowered = (each.lower() if each.isascii() else each for each in domains)
    found = tuple(dict.fromkeys(each.removesuffix(".") for each in lowered))
    if not 1 <= len(found) <= MOST_DOMAINS:
        raise InvalidInput(
            f"domains: a certificate is for 1 to {MOST_DOMAINS} domains, not {len(found)}",
            field="domains",
            reason="count",
        )
    for domain in found:
        if problem := _problem(domain):
            raise InvalidInput(f"domains: {domain!r} {problem}", field="domains", reason="invalid")
    return found


def base_of(domain: str) -> str:
    """Return the domain whose control proves that of `domain`: a wildcard's is below its star."""
    return domain.removeprefix("*.")


def _problem(domain: str) -> str:
    if not domain.isascii():
        return "is not in the form of DNS: write it with xn--"
    if "*" in domain.removeprefix("*."):
        return "has a * elsewhere than as its whole first label"
    if _DOMAIN.fullmatch(domain) is None or len(domain) > _MOST_CHARACTERS:
        return "is no domain such as www.example.com or *.example.com"
    return ""
