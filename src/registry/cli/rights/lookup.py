"""Find service accounts, roles, policies, keys and people as a person names them."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from cloudcore.crn import Crn
from cloudcore.errors import InvalidInput
from cloudcore.uuids import parse_uuid
from registry.cli.api import ApiClient, Record
from registry.cli.crns import own_crn
from registry.cli.failure import Missing, Misuse
from registry.cli.output import printable


class Kind(NamedTuple):
    """A kind of resource that people name, and where ``/v1`` has it."""

    noun: str
    """Of its commands."""
    words: str
    path: str
    field: str
    """The field of one record in an answer."""
    fields: str
    """The field of a list in an answer."""
    name: str = "name"
    """The field of a record that holds the name."""


SERVICE_ACCOUNT: Final = Kind(
    "service-accounts",
    "service account",
    "/v1/service-accounts",
    "service_account",
    "service_accounts",
)
ROLE: Final = Kind("roles", "role", "/v1/roles", "role", "roles")
POLICY: Final = Kind("policies", "policy", "/v1/policies", "policy", "policies")
USER: Final = Kind("users", "person", "/v1/users", "user", "users", name="email")

KEY: Final = Kind("keys", "key", "/v1/keys", "key", "keys")


def add_named(parser: argparse.ArgumentParser, kind: Kind) -> None:
    """Add the argument that names a resource of a kind."""
    parser.add_argument(
        kind.field,
        metavar="EMAIL" if kind is USER else kind.field.upper().replace("_", "-"),
        help=f"{'e-mail address' if kind is USER else 'name'}, id or CRN",
    )


def find(client: ApiClient, kind: Kind, written: str) -> Record:
    """Return the record of a resource by its name, id or CRN.

    Raises:
        Missing: the caller's account or organization has no such resource.
        Misuse: nothing is named; or as `own_crn`.

    """
    if not written:
        raise Misuse(f"which {kind.words}? an empty text names none")
    if parse_uuid(written) is not None:
        found: Record = client.call("GET", f"{kind.path}/{written}")[kind.field]
        return found
    is_crn = written.startswith("crn:")
    field = "crn" if is_crn else kind.name
    sought = written.lower() if kind is USER else written
    if is_crn and kind is not USER:  # people are of an organization
        sought = _own(client, kind, written)
    for row in client.rows(kind.path, kind.fields):
        if row[field] == sought:
            return row
    raise Missing(
        f"there is no {kind.words} {printable(written)!r}; "
        f"'entrepot {kind.noun} list' shows those there are"
    )


def _own(client: ApiClient, kind: Kind, written: str) -> str:
    """Return a CRN with the id of the caller's account; return a malformed one unchanged."""
    try:
        crn = Crn.parse(written)
    except InvalidInput:
        return written
    own = own_crn(client, crn)
    if own is None:
        raise Missing(f"{printable(written)!r} is a {kind.words} of another account")
    return str(own)


def path_of(client: ApiClient, kind: Kind, written: str) -> str:
    """Return the path of a resource by its name, id or CRN; raise what `find` raises."""
    return f"{kind.path}/{find(client, kind, written)['id']}"
