"""Queries of identity providers, and of the persons that their subjects are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, select, text

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import count
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.provider_tables import identity_providers, provider_subjects, spent_states
from cloudcore.identity.rows.insertion import insertion
from cloudcore.identity.tables import memberships

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
    """After these a person signs in anew, however often the session was refreshed."""

    @property
    def domains(self) -> Sequence[str]:
        """Return the domains of e-mail addresses that it is the authority of."""
        return self.email_domains.split()


def _columns() -> Select[Any]:
    return select(*(_p[name] for name in IdentityProvider._fields))


_OF_ORGANIZATION: Final = _p.organization_id == bindparam("organization_id")
_IN_LIST: Final = (_OF_ORGANIZATION, named(_p.name))
_ADD: Final = insertion(identity_providers, "session_hours")
_FIND: Final = Statement(_columns().where(_p.id == bindparam("id")))
_FIND_OF: Final = Statement(_columns().where(_OF_ORGANIZATION, _p.id == bindparam("id")))
_LIST: Final = Statement(
    page(_columns().where(*_IN_LIST, _p.name > bindparam("after")).order_by(_p.name))
)
_COUNT: Final = Statement(select(func.count()).select_from(identity_providers).where(*_IN_LIST))
_LIST_ACTIVE: Final = Statement(
    page(_columns().where(_p.status == text("'active'")).order_by(_p.name, _p.id))
)
_UPDATE: Final = Statement(
    identity_providers.update()
    .where(_p.id == bindparam("provider_id"))
    .values(
        name=bindparam("name"),
        client_secret_sealed=bindparam("client_secret_sealed"),
        scopes=bindparam("scopes"),
        email_verified_claim=bindparam("email_verified_claim"),
        email_domains=bindparam("email_domains"),
        creates_people=bindparam("creates_people"),
        status=bindparam("status"),
        session_hours=bindparam("session_hours"),
        updated_at=bindparam("updated_at"),
    )
)
_DELETE: Final = Statement(identity_providers.delete().where(_p.id == bindparam("provider_id")))
_ADD_SUBJECT: Final = insertion(provider_subjects)
_FIND_SUBJECT: Final = Statement(
    select(_s.user_id).where(
        _s.provider_id == bindparam("provider_id"), _s.subject == bindparam("subject")
    )
)
_OF_PERSON: Final = (
    select(_p.organization_id, _p.id)
    .join(provider_subjects, _s.provider_id == _p.id)
    .join(
        memberships,
        and_(
            memberships.c.organization_id == _p.organization_id,
            memberships.c.user_id == _s.user_id,
        ),
    )
    .where(_s.user_id == bindparam("user_id"), _p.status == text("'active'"))
    .order_by(_p.id)
)
_LIST_OF_PERSON: Final = Statement(_OF_PERSON)
_LOCK_OF_PERSON: Final = Statement(_OF_PERSON.with_for_update(read=True, of=identity_providers))
_UNLINK: Final = Statement(
    provider_subjects.delete().where(
        _s.user_id == bindparam("user_id"),
        _s.provider_id.in_(select(_p.id).where(_OF_ORGANIZATION)),
    )
)
_SPEND: Final = insertion(spent_states)
_FORGET: Final = deletion(spent_states.c.expires_at)


def add_provider(tx: Connection, provider: IdentityProvider) -> bool:
    """Insert a provider; return False if its organization has one of this name."""
    return tx.execute(_ADD, **provider._asdict()) == 1


def find_provider(tx: Connection, provider_id: str) -> IdentityProvider | None:
    """Return a provider of any organization, or None."""
    row = tx.row(_FIND, id=provider_id)
    return _provider(row) if row else None


def find_provider_of(
    tx: Connection, organization_id: str, provider_id: str
) -> IdentityProvider | None:
    """Return a provider of an organization, or None."""
    row = tx.row(_FIND_OF, organization_id=organization_id, id=provider_id)
    return _provider(row) if row else None


def list_providers(
    tx: Connection, organization_id: str, name: str, after: str, limit: int
) -> list[IdentityProvider]:
    """Return providers of an organization, by name; if `name` is not empty, only that one."""
    rows = tx.rows(_LIST, organization_id=organization_id, name=name, after=after, limit=limit)
    return [_provider(row) for row in rows]


def count_providers(tx: Connection, organization_id: str, name: str) -> int:
    """Count the providers that `list_providers` lists."""
    return count(tx, _COUNT, organization_id=organization_id, name=name)


def list_active_providers(tx: Connection, limit: int) -> list[IdentityProvider]:
    """Return the active providers of all organizations, by name."""
    return [_provider(row) for row in tx.rows(_LIST_ACTIVE, limit=limit)]


def save_provider(tx: Connection, provider: IdentityProvider) -> None:
    """Update the changeable columns of a provider."""
    values = provider._asdict()
    for fixed in ("id", "organization_id", "issuer", "client_id", "groups_claim", "created_at"):
        del values[fixed]
    tx.execute(_UPDATE, provider_id=provider.id, **values)


def remove_provider(tx: Connection, provider_id: str) -> None:
    """Delete a provider, its links to persons, and its group assignments."""
    tx.execute(_DELETE, provider_id=provider_id)


def link_subject(tx: Connection, provider_id: str, subject: str, user_id: str, now: int) -> bool:
    """Link a subject to a person; return False if either is linked at this provider already."""
    values = {"provider_id": provider_id, "subject": subject, "user_id": user_id}
    return tx.execute(_ADD_SUBJECT, **values, created_at=now) == 1


def find_person_of_subject(tx: Connection, provider_id: str, subject: str) -> str | None:
    """Return the id of the person that a subject is linked to, or None."""
    row = tx.row(_FIND_SUBJECT, provider_id=provider_id, subject=subject)
    return row[0] if row else None


def unlink_person(tx: Connection, organization_id: str, user_id: str) -> None:
    """Delete a person's links to the providers of an organization."""
    tx.execute(_UNLINK, organization_id=organization_id, user_id=user_id)


def list_providers_of_person(
    tx: Connection, user_id: str, *, locks: bool = True
) -> list[tuple[str, str]]:
    """Return (organization id, id) of the providers that speak for a person.

    These are active providers at which the person has signed in, of organizations in which the
    person still is. They stay active until the transaction ends, unless `locks` is False.
    """
    statement = _LOCK_OF_PERSON if locks else _LIST_OF_PERSON
    return [(row[0], row[1]) for row in tx.rows(statement, user_id=user_id)]


def spend_state(tx: Connection, state_sha256: str, expires_at: int) -> bool:
    """Record that a state was used; return False if it was used before."""
    return tx.execute(_SPEND, state_sha256=state_sha256, expires_at=expires_at) == 1


def forget_states(tx: Connection, now: int) -> int:
    """Delete a batch of the states that have expired; return how many."""
    return tx.execute(_FORGET, before=now)


def _provider(row: tuple[Any, ...]) -> IdentityProvider:
    provider = IdentityProvider(*row)
    return provider._replace(creates_people=bool(provider.creates_people))
