"""References to resources in requests: an id, a CRN or a name.

A name is unique within account and region. A malformed reference, or a CRN of another account or
region, is refused before any lookup. Then the caller's right to the resource is checked; only a
caller with that right learns that a resource does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from cloudcore.account_rows import handle_of
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound, invalid_field
from cloudcore.resource_names import Crn, check_name, parse_uuid


class Scope(NamedTuple):
    """The account and region in which references are resolved."""

    account_id: str
    region: str
    """Empty for kinds of resources that are not regional."""


R = TypeVar("R")
Authorize = Callable[[str], None]
"""Gets the CRN of a resource that a request names; raises `AccessDenied` if the caller may not use
it in this way. See `RequestContext.right_to`."""
RightTo = Callable[[str], Authorize]
"""Gets an action; returns the `Authorize` for it."""


class Kind(NamedTuple, Generic[R]):
    """A kind of resource."""

    service: str
    """The service in the kind's CRNs."""
    type: str
    """The type in the kind's CRNs, and its name in errors."""
    find: Callable[[Connection, Scope, str], R | None]
    """Returns the resource with this id, or None."""
    find_named: Callable[[Connection, Scope, str], R | None]
    """Returns the resource with this name, or None."""
    missing: Callable[[], NotFound]
    """Makes the error for a resource that does not exist."""
    check: Callable[[str], None] = check_name
    """Raises `InvalidInput` for a name that no resource of this kind can have."""
    name_of: Callable[[R], str | None] = attrgetter("name")
    """Returns the name that a resource has in its CRN, or None if the resource was deleted."""

    def crn(self, scope: Scope, name: str) -> str:
        """Return the CRN of a resource of this kind; `name` may be a pattern."""
        return str(Crn(self.service, scope.region, scope.account_id, self.type, name))


class _Reference(NamedTuple):
    """A parsed reference: either an id or a name."""

    id: str | None
    name: str


def resolve(
    tx: Connection, scope: Scope, kind: Kind[R], field: str, value: str, authorize: Authorize | None
) -> R:
    """Return the resource to which `value` in a request's `field` refers.

    `authorize` is called before existence is revealed. For a name, it gets the CRN with that name.
    For an id, it gets the CRN of the resource found or, if there is none, the pattern of all CRNs
    of the kind. `authorize` is None if the platform itself is the caller.

    Raises:
        InvalidInput: `value` is not an id, name or CRN of this kind, or is the CRN of another
            service, region or account; the error names `field`.
        AccessDenied: `authorize` refused.
        NotFound: there is no such resource; `kind.missing` makes the error.

    """
    meant = _read(tx, scope, kind, field, value)
    if meant.id is None:
        if authorize is not None:
            authorize(kind.crn(scope, meant.name))
        found = kind.find_named(tx, scope, meant.name)
    else:
        found = kind.find(tx, scope, meant.id)
        if authorize is not None:
            authorize(kind.crn(scope, (found and kind.name_of(found)) or "*"))
    if found is None:
        raise kind.missing()
    return found


def _read(tx: Connection, scope: Scope, kind: Kind[R], field: str, value: str) -> _Reference:
    if value.startswith("crn:"):
        return _Reference(None, _name_in(tx, scope, kind, field, value))
    if (found := parse_uuid(value)) is not None:
        return _Reference(found, "")
    if _is_name(kind, value):
        return _Reference(None, value)
    raise invalid_field(field, f"is the id, the name or the CRN of a {kind.type}", "malformed")


def _name_in(tx: Connection, scope: Scope, kind: Kind[R], field: str, text: str) -> str:
    """Return the name in a CRN of this kind and scope; the account may be given by its handle."""
    region = "<region>" if scope.region else ""
    form = f"the CRN of a {kind.type} is crn:{kind.service}:{region}:<account>:{kind.type}/<name>"
    try:
        crn = Crn.parse(text)
    except InvalidInput:
        raise invalid_field(field, form, "malformed_crn") from None
    if crn.type != kind.type or not _is_name(kind, crn.name):
        raise invalid_field(field, form, "malformed_crn")
    if crn.service != kind.service:
        raise invalid_field(
            field, f"is the CRN of another service than {kind.service}", "wrong_service"
        )
    if crn.region != scope.region:
        words = (
            f"must be of this region, {scope.region}" if scope.region else "must be of no region"
        )
        raise invalid_field(field, words, "foreign_region")
    if crn.account != scope.account_id and crn.account != handle_of(tx, scope.account_id):
        raise invalid_field(field, f"must be a {kind.type} of your account", "foreign_account")
    return crn.name


def _is_name(kind: Kind[R], text: str) -> bool:
    with suppress(InvalidInput):
        kind.check(text)
        return True
    return False
