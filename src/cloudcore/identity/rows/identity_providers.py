"""Queries of identity providers, and of the links from their subjects to persons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.calls import Execute, Find, FindAll
from cloudcore.db.rows import columns, deletion, given, insert_new
from cloudcore.db.statement import Statement, page
from cloudcore.identity import tables
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
    """Separated by spaces."""
    groups_claim: str
    email_verified_claim: str
    email_domains: str
    """Separated by spaces; the domains it is the authority of."""
    creates_people: bool
    status: str
    created_at: int
    updated_at: int
    session_hours: int = DEFAULT_SESSION_HOURS
    """The longest session, however often it is refreshed; then the person signs in again."""

    @property
    def domains(self) -> Sequence[str]:
        """Return the domains whose e-mail addresses this provider vouches for."""
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
_every = columns(identity_providers, IdentityProvider._fields)
find_provider: Final = Find[IdentityProvider, str](
    IDENTITY_PROVIDERS.row, _every.where(given(_p.id)), "id"
)
"""Finds a provider of any organization."""
list_active_providers: Final = FindAll[IdentityProvider, int](
    IDENTITY_PROVIDERS.row,
    page(_every.where(_p.status == text("'active'")).order_by(_p.name, _p.id)),
    "limit",
)
"""Lists the active providers of all organizations, by name."""
_SUBJECT: Final = "provider_id", "subject", "user_id", "created_at"
link_subject: Final = Execute[str, str, str, int](
    insert_new(provider_subjects, _SUBJECT), *_SUBJECT
)
"""Links a subject to a person; changes nothing if either is linked at this provider already."""
find_person_of_subject: Final = Find[str, str, str](
    str, select(_s.user_id).where(given(_s.provider_id, _s.subject)), "provider_id", "subject"
)
"""Finds the id of the person that a subject is linked to."""
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
unlink_person: Final = Execute[str, str](
    provider_subjects.delete().where(
        _s.user_id == bindparam("user_id"),
        _s.provider_id.in_(select(_p.id).where(given(_p.organization_id))),
    ),
    *("organization_id", "user_id"),
)
"""Deletes a person's links to the providers of an organization."""
spend_state: Final = Execute[str, int](
    insert_new(tables.spent_states, ("state_sha256", "expires_at")), "state_sha256", "expires_at"
)
"""Records that a state was used; changes nothing if it was used before."""
forget_states: Final = deletion(tables.spent_states.c.expires_at)
"""Deletes a batch of the states that have expired."""


def list_providers_of_person(
    tx: Connection, user_id: str, *, locks: bool = True
) -> list[tuple[str, str]]:
    """Return (organization id, id) of the active providers that a person is linked to.

    Only providers of organizations that the person still belongs to count. They stay active until
    the transaction ends, unless `locks` is False.
    """
    statement = _LOCK_OF_PERSON if locks else _LIST_OF_PERSON
    return [(row[0], row[1]) for row in tx.rows(statement, user_id=user_id)]
