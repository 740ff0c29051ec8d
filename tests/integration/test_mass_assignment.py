"""What the server owns cannot be sent, in the body of any operation.

Sent are the names of all columns of all tables and of all fields that records show, one at a time
and each in an otherwise good body: 400 that names it, and nothing has changed. An ordinary run
sends each operation a part of the columns, a soak all; the shapes themselves are
checked to take no other field, whatever it is called.
"""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import msgspec

from cloudcore.db.schema import metadata
from cloudcore.web.route_spec import RouteSpec
from tests.integration.id_places import BODIES as OF_PLACES
from tests.integration.id_places import PLACES, filled, token_of
from tests.integration.identity_operations import dump, fields_of
from tests.integration.served_world import Served
from tests.soak import IS_SOAK
from tests.spec.operations import OPERATIONS

SHOWN: Final = (
    *("uri", "crn", "visibility", "encryption", "image_count", "size_bytes", "tag_count"),
    *("last_pushed_at", "last_pulled_at", "organization", "account", "principal", "permissions"),
    *("is_admin", "admin", "__class__", "$where", "one_time_password", "secret_access_key"),
)
"""Fields of records that are no columns, and some that are nowhere."""
COLUMNS: Final = sorted({c.name for table in metadata.tables.values() for c in table.c})
PARTS: Final = 1 if IS_SOAK else 6
BODIES: Final[dict[str, Any]] = {
    **OF_PLACES,
    "POST /v1/repositories": {"name": "new"},
    "PATCH /v1/repositories/{}": {"description": "New."},
    "POST /v1/assume-role": {"role": "crn:iam::acme:role/role"},
    "POST /v1/authorization-token": {},
}


async def test_no_field_of_the_servers_is_taken(served: Served) -> None:
    """Each field is refused, and nothing has changed."""

    by_place = {_place(spec): spec for spec in served.specs}
    paths = {place.operation.place: filled(place, served.acme) for place in PLACES}
    before, sent = await served.database.read(dump), 0
    for number, operation in enumerate(OPERATIONS):
        spec = by_place.get(operation.place)
        if spec is None or spec.public or spec.body is None:
            continue
        body = BODIES.get(operation.place, {})  # an unknown field is told before a missing one
        for name in sorted(names_for(number) - fields_of(spec) - {*(body or ())}):
            answer = await served.ask(
                operation.method,
                paths.get(operation.place, operation.path),
                {**(body or {}), name: "x"},
                token=token_of(operation, served.acme),
            )
            error = answer.json()["error"]
            assert answer.status_code == 400, (operation.place, name, error)
            assert error["params"]["reason"] == "unknown_field", (operation.place, name, error)
            assert error["params"]["field"].endswith(name)
            sent += 1
    assert sent > 600
    assert await served.database.read(dump) == before


def names_for(number: int) -> set[str]:
    """Return what an operation is sent."""
    return {*SHOWN, *COLUMNS[number % PARTS :: PARTS]}


async def test_no_shape_of_a_body_takes_other_fields(served: Served) -> None:
    """Of every operation, so that no name is forgotten."""
    strict = []

    for spec in served.specs:
        shapes = [each for each in (spec.body, *get_args(spec.body)) if is_struct(each)]
        for shape in shapes:
            assert shape.__struct_config__.forbid_unknown_fields, spec.operation
            strict.append(shape)
    assert len(strict) > 20


def is_struct(shape: object) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _place(spec: RouteSpec) -> str:
    return f"{spec.method} {re.sub(r'{[^}]*}', '{}', spec.path)}"
