"""Queries of identity providers, and of the links from their subjects to persons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import columns_of, deletion, find_all, find_one, given, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.identity import tables
from cloudcore.identity.rows.organizations import lock_if_exists
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.tables import identity_providers, provider_subjects

_p = identity_providers.c
_s = provider_subjects.c


DEFAULT_SESSION_HOURS: Final = 7 * 24


class IdentityProvider(NamedTuple):
    """An OpenID Connect provider of an organization."""

    id: str
    organization_id: str
    name: str
    issuer: str
    client_id: str
    client_secret_sealed: bytes | None
    scopes: str
    """The scopes to request, separated by spaces."""
    groups_claim: str
    email_verified_claim: str
    email_domains: str
    """The domains for which the provider is the authority, separated by spaces."""
    creates_people: bool
    status: str
    created_at: int
    updated_at: int
    session_hours: int = DEFAULT_SESSION_HOURS
    """Maximum length of a session, however often it is refreshed; then a new sign-in is needed."""

    @property
    def domains(self) -> Sequence[str]:
        """Return `email_domains` as a list."""
        return self.email_domains.split()


IDENTITY_PROVIDERS: Final = OwnedRows(
    identity_providers,
    IdentityProvider,
    "identity provider",
    (
        *("name", "client_secret_sealed", "scopes", "email_verified_claim", "email_domains"),
        *("creates_people", "status", "session_hours", "updated_at"),
    ),
    owner="organization_id",
)
_every = columns_of(identity_providers, IdentityProvider._fields)
_FIND_PROVIDER: Final = Statement(_every.where(given(_p.id)))
_LIST_ACTIVE_PROVIDERS: Final = Statement(
    page(_every.where(_p.status == text("'active'")).order_by(_p.name, _p.id))
)
_SUBJECT: Final = "provider_id", "subject", "user_id", "created_at"
_LINK_SUBJECT: Final = Statement(insert_new(provider_subjects, _SUBJECT))
_FIND_PERSON_OF_SUBJECT: Final = Statement(
    select(_s.user_id).where(given(_s.provider_id, _s.subject))
)
_OF_PERSON: Final = (
    select(_p.organization_id, _p.id)
    .join(provider_subjects, _s.provider_id == _p.id)
    .join(
        tables.memberships,
        and_(
            tables.memberships.c.organization_id == _p.organization_id,
            tables.memberships.c.user_id == _s.user_id,
        ),
    )
    .where(_s.user_id == bindparam("user_id"), _p.status == text("'active'"))
    .order_by(_p.id)
)
_LIST_OF_PERSON: Final = Statement(_OF_PERSON)
_LOCK_OF_PERSON: Final = Statement(_OF_PERSON.with_for_update(read=True, of=identity_providers))
_UNLINK_PERSON: Final = Statement(
    provider_subjects.delete().where(
        _s.user_id == bindparam("user_id"),
        _s.provider_id.in_(select(_p.id).where(given(_p.organization_id))),
    )
)
_SPEND_STATE: Final = Statement(insert_new(tables.spent_states, ("state_sha256", "expires_at")))
forget_states: Final = deletion(tables.spent_states.c.expires_at)
"""Deletes a batch of the expired states."""


def list_providers_of_person(
    tx: Connection, user_id: str, *, locks: bool = True
) -> list[tuple[str, str]]:
    """Return (organization id, provider id) of the active providers that a person is linked to.

    Providers of organizations that the person has left are not returned. The providers are locked
    until the transaction ends, so that they stay active, unless `locks` is False.
    """
    statement = _LOCK_OF_PERSON if locks else _LIST_OF_PERSON
    return [(row[0], row[1]) for row in tx.rows(statement, user_id=user_id)]


def find_provider(tx: Connection, provider_id: str) -> IdentityProvider | None:
    """Return a provider of any organization, or None if there is none with this id."""
    return find_one(tx, IDENTITY_PROVIDERS.row, _FIND_PROVIDER, id=provider_id)


def lock_provider(tx: Connection, provider_id: str) -> IdentityProvider | None:
    """Lock a provider until the transaction ends; return it, or None if there is none.

    The lock is that of the organization. A request that deactivates the provider waits for the
    lock, and then ends the sessions that this transaction has begun.
    """
    provider = find_provider(tx, provider_id)
    if provider is None or not lock_if_exists(tx, provider.organization_id):
        return None
    return find_provider(tx, provider_id)  # read again under the lock


def list_active_providers(tx: Connection, limit: int) -> list[IdentityProvider]:
    """List the active providers of all organizations, sorted by name."""
    return find_all(tx, IDENTITY_PROVIDERS.row, _LIST_ACTIVE_PROVIDERS, limit=limit)


def link_subject(tx: Connection, provider_id: str, subject: str, user_id: str, now: int) -> bool:
    """Link a provider's subject to a person.

    Return False, and change nothing, if the subject or the person is already linked there.
    """
    of = {"provider_id": provider_id, "subject": subject, "user_id": user_id}
    return tx.execute(_LINK_SUBJECT, **of, created_at=now) == 1


def find_person_of_subject(tx: Connection, provider_id: str, subject: str) -> str | None:
    """Return the id of the person that a provider's subject is linked to, or None."""
    return find_one(tx, str, _FIND_PERSON_OF_SUBJECT, provider_id=provider_id, subject=subject)


def unlink_person(tx: Connection, organization_id: str, user_id: str) -> None:
    """Delete a person's links to the providers of an organization."""
    tx.execute(_UNLINK_PERSON, organization_id=organization_id, user_id=user_id)


def spend_state(tx: Connection, state_sha256: str, expires_at: int) -> bool:
    """Record that a state was used; return False if it was used before."""
    return tx.execute(_SPEND_STATE, state_sha256=state_sha256, expires_at=expires_at) == 1
