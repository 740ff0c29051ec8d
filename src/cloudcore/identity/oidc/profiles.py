"""What a provider says of a person, of whose claims only few are believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cloudcore.errors import InvalidInput
from cloudcore.identity.names import email_address
from cloudcore.identity.rows.identity_providers import IdentityProvider

MAX_GROUPS: Final = 2000
"""The most groups of a person that are read; others count as not there."""
MAX_GROUP_NAME: Final = 256


class Profile(NamedTuple):
    """A person as its provider knows it."""

    subject: str
    """The provider's unchangeable name of the person."""
    email: str | None
    """The e-mail address in lower case, if the provider is the authority of its domain and has
    verified it; else None."""
    groups: frozenset[str]


def profile_of(provider: IdentityProvider, claims: Mapping[str, Any]) -> Profile:
    """Return the profile in the verified `claims` of a person."""
    return Profile(
        subject=claims["sub"],
        email=_trusted_email(provider, claims),
        groups=_groups(claims.get(provider.groups_claim)),
    )


def lacks_claims(provider: IdentityProvider, claims: Mapping[str, Any]) -> bool:
    """Return True if the userinfo endpoint may tell what the ID token does not."""
    return not {"email", provider.groups_claim} <= claims.keys()


def _trusted_email(provider: IdentityProvider, claims: Mapping[str, Any]) -> str | None:
    email, is_verified = claims.get("email"), claims.get(provider.email_verified_claim)
    # Some providers send a number or a text instead of true.
    if not isinstance(email, str) or is_verified not in (True, 1, "true", "1"):
        return None
    try:
        address = email_address(email)
    except InvalidInput:
        return None
    return address if address.rpartition("@")[2] in provider.domains else None


def _groups(value: object) -> frozenset[str]:
    """Return the groups in a claim: a list of names, or one name."""
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(
        name
        for name in names[:MAX_GROUPS]
        if isinstance(name, str) and 1 <= len(name) <= MAX_GROUP_NAME and name.isprintable()
    )
