"""What the server owns cannot be sent, in the body of any operation.

Sent are the names of all columns of all tables and of all fields that records show, one at a time
and each in an otherwise good body: 400 that names it, and nothing has changed. An ordinary run
sends each operation a part of the names and all that would give rights, a soak all; the shapes
themselves are checked to take no other field, whatever it is called. So is each field that there
is, with values of other types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, get_args

import msgspec
import pytest

from cloudcore.db.schema import metadata
from cloudcore.web.route_spec import RouteSpec
from tests.integration.id_places import BODIES as OF_PLACES
from tests.integration.id_places import PLACES, filled, token_of
from tests.integration.identity_operations import dump, fields_of
from tests.integration.served_world import Served
from tests.soak import IS_SOAK
from tests.spec.operations import OPERATIONS, Operation

ALWAYS: Final = (
    *("account", "account_id", "organization", "principal", "permissions", "is_admin"),
    "secret_access_key",
)
"""Fields that would give rights: each operation is sent all of them."""
SHOWN: Final = (
    *("uri", "crn", "visibility", "encryption", "image_count", "size_bytes", "tag_count"),
    *("last_pushed_at", "last_pulled_at", "admin", "__class__", "$where", "one_time_password"),
)
"""Fields of records that are no columns, and some that are nowhere."""
NAMES: Final = sorted(
    {*ALWAYS, *SHOWN, *(c.name for table in metadata.tables.values() for c in table.c)}
)
WRONG: Final[tuple[Any, ...]] = (
    *(1, 1.5, True, [], [{}], {"a": {}}, {"version": 1}, "\x00", "\ud800"),
)
"""In the place of a good value; a number or a truth only where the good value is none."""
WRONG_EVERYWHERE: Final[list[Any]] = [{"no such field": {}}]
LAST: Final = {place.operation.place: place for place in PLACES}
PARTS: Final = 1 if IS_SOAK else 60
BODIES: Final[dict[str, Any]] = {
    **OF_PLACES,
    "POST /v1/repositories": {"name": "new"},
    "PATCH /v1/repositories/{}": {"description": "New."},
    "POST /v1/assume-role": {"role": "crn:iam::acme:role/role"},
    "POST /v1/authorization-token": {},
    "POST /v1/policy-simulations": {
        "principal": "crn:iam::acme:service-account/program",  # it is looked up before documents
        "actions": ["iam:GetRole"],
        "resource": "crn:iam::acme:role/admin",
    },
}


class Sender(NamedTuple):
    """An operation that takes a body, and who may send it."""

    served: Served
    operation: Operation
    body: dict[str, Any]
    """A good one, or one without fields."""
    known: set[str]
    """The fields that it may have."""

    async def send(self, body: object) -> dict[str, Any]:
        place = self.operation.place
        path = filled(LAST[place], self.served.acme) if place in LAST else self.operation.path
        token = token_of(self.operation, self.served.acme)
        answer = await self.served.ask(self.operation.method, path, body, token=token)
        assert answer.status_code == 400, (place, body, answer.text)
        return dict(answer.json()["error"])


def senders(served: Served) -> Iterator[Sender]:
    """Yield every operation that takes a body."""
    by_place = {_place(spec): spec for spec in served.specs}
    for operation in OPERATIONS:
        spec = by_place.get(operation.place)
        if spec is not None and not spec.public and spec.body is not None:
            body = BODIES.get(operation.place) or {}
            yield Sender(served, operation, body, fields_of(spec) | body.keys())


@pytest.mark.timeout(240)  # it asks all operations that change something
async def test_no_field_of_the_servers_is_taken(served: Served) -> None:
    before, sent = await served.database.read(dump), 0
    for number, to in enumerate(senders(served)):
        for name in sorted({*ALWAYS, *NAMES[number % PARTS :: PARTS]} - to.known):
            # An unknown field is told before a missing one.
            error = await to.send({**to.body, name: "x"})
            assert error["params"]["reason"] == "unknown_field", (to.operation, name, error)
            assert error["params"]["field"].endswith(name)
            sent += 1
    assert sent > 1500
    assert await served.database.read(dump) == before


async def test_no_field_takes_a_value_of_another_type(served: Served) -> None:
    """Nor does a body that is no object."""
    before, sent = await served.database.read(dump), 0
    for to in senders(served):
        for name in sorted(to.known):
            error = await to.send({**to.body, name: WRONG_EVERYWHERE})
            # A document tells of its own fields.
            is_told = error["params"]["field"].startswith((name, *WRONG_EVERYWHERE[0]))
            assert is_told, (to.operation, name, error)
            sent += 1
            for wrong in WRONG if name in to.body else ():
                if type(wrong) is not type(to.body[name]) or not isinstance(wrong, int):
                    await to.send({**to.body, name: wrong})
        for whole in ([], [to.body], "text", 1):
            await to.send(whole)
    assert sent > 300
    assert await served.database.read(dump) == before


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


CHANGES: Final = {
    "/v1/accounts/{}": "auto_create_repositories status",
    "/v1/buckets/{}": "kms_key tags",
    "/v1/certificate-settings": "private_key_export",
    "/v1/certificates/{}": "tags",
    "/v1/clusters/{}": "description retention schedule tags",
    "/v1/dedicated-ips/{}": "ip_pool",
    "/v1/egress-only-gateways/{}": "description tags",
    "/v1/identities/{}": "description ip_pool tags",
    "/v1/instance-pools/{}": "command cpu_millis description environment image memory_mb"
    " security_groups size tags",
    "/v1/internet-gateways/{}": "description tags",
    "/v1/ip-pools/{}": "description tags",
    "/v1/keys/{}": "description tags",
    "/v1/load-balancers/{}": "backends description listeners replica_count security_groups tags",
    "/v1/organizations/{}": "name",
    "/v1/organizations/{}/identity-providers/{}": "client_secret creates_people email_domains"
    " email_verified_claim name scopes session_hours status",
    "/v1/organizations/{}/members/{}": "role",
    "/v1/payment-methods/{}": "display_name is_default",
    "/v1/policies/{}": "description document",
    "/v1/pull-through-cache-rules/{}": "credential enabled keep_unpulled_days max_bytes"
    " negative_ttl_seconds tag_ttl_seconds upstream_prefix upstream_url",
    "/v1/queues/{}": "delay_seconds description lease_seconds redrive_policy retention_seconds"
    " tags",
    "/v1/registry-settings": "access_key_login uncounted_pullers undelete_days",
    "/v1/repositories/{}": "description immutable_tag_exclusions tag_mutability tags",
    "/v1/roles/{}": "description max_session_seconds trust_policy",
    "/v1/route-tables/{}": "description routes tags",
    "/v1/security-groups/{}": "description rules tags",
    "/v1/service-accounts/{}": "description status",
    "/v1/service-accounts/{}/access-keys/{}": "description expires_at status",
    "/v1/subnets/{}": "description route_table tags",
    "/v1/suppressions/{}": "description expires_at",
    "/v1/templates/{}": "description html subject tags text",
    "/v1/topics/{}": "delivery_policy description tags",
    "/v1/topics/{}/subscriptions/{}": "delivery_policy filter_policy raw_message_delivery"
    " redrive_policy",
    "/v1/users/{}": "status",
    "/v1/vpcs/{}": "description tags",
}
"""The fields that each PATCH takes: what has no place here stays as it was made."""


async def test_a_patch_takes_these_fields_and_no_other(served: Served) -> None:
    specs = [spec for spec in served.specs if spec.method == "PATCH"]
    found = {_place(spec): " ".join(sorted(fields_of(spec))) for spec in specs}
    assert found == {f"PATCH {path}": names for path, names in CHANGES.items()}
