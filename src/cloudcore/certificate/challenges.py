"""How control of a domain is proved: a CNAME that its owner sets once leads to a record of ours.

The owner publishes ``_acme-challenge.<domain>. CNAME <number>.<id>.acme.<zone>.``. What an
authority wants to read there (RFC 8555 §8.4) is then published under our name, at each renewal
anew. Each domain of a certificate has a name of its own, so that its values fit into a small
answer; certificates that were requested earlier keep one name for all, ``<id>.acme.<zone>.``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cloudcore.certificate.domains import base_of


class Challenge(NamedTuple):
    """The proof for one domain of a certificate; names end in a dot."""

    domain: str
    cname_record_name: str
    expected_cname: str
    our_dns: bool
    """The platform hosts the domain's zone, and sets the record itself."""
    verified_at: int | None
    """When it was first seen, in microseconds since the epoch; None if it never was."""

    def seen(self, now: int) -> Challenge:
        """Return it as verified; the first time stays."""
        return self if self.verified_at is not None else self._replace(verified_at=now)


def challenges_of(
    certificate_id: str, domains: Sequence[str], zone: str, hosted: Sequence[str], now: int
) -> tuple[Challenge, ...]:
    """Return one challenge for each domain of a new certificate.

    `zone` is the platform's own, where challenges lead to; `hosted` are those of `domains` for
    which nobody needs to set a record. A wildcard and the domain that it is below share one.
    """
    bases = list(dict.fromkeys(base_of(each) for each in domains))
    targets = {
        base: f"{number}.{certificate_id}.acme.{zone}." for number, base in enumerate(bases, 1)
    }
    return tuple(
        Challenge(
            domain,
            f"_acme-challenge.{base_of(domain)}.",
            targets[base_of(domain)],
            domain in hosted,
            now if domain in hosted else None,
        )
        for domain in domains
    )


def values_by_record(
    challenges: Sequence[Challenge], values: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the TXT values that each of our records has at the same moment.

    `values` are those that the authority wants, in the order of the challenges: one for each
    domain, so a wildcard and the domain that it is below need two.
    """
    found: dict[str, tuple[str, ...]] = {}
    for challenge, value in zip(challenges, values, strict=True):
        before = found.get(challenge.expected_cname, ())
        found[challenge.expected_cname] = (*before, value) if value not in before else before
    return found


def renewal_at(not_before: int, expires_at: int) -> int:
    """Return when a certificate is renewed: when a third of its life is left."""
    return expires_at - (expires_at - not_before) // 3
