"""Every id in the path of every operation of both planes, and requests that fill it in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import httpx

from registry.distribution.app import ROUTES
from registry.distribution.routing import Endpoint
from tests.integration.identity_operations import BODIES as OF_IDENTITY
from tests.integration.served_world import Tenant
from tests.spec.operations import OPERATIONS, Operation

UNKNOWN: Final = "01890000-0000-7000-8000-0000000000ff"
UNKNOWN_DIGEST: Final = "sha256:" + "0" * 64
RULE: Final = {"priority": 1, "selector": "untagged", "older_than_days": 1}
STATEMENT: Final = {"effect": "allow", "principals": ["*"], "actions": ["registry:PullImage"]}
BODIES: Final[dict[str, object]] = {
    **{re.sub(r"\{\w+\}", "{}", operation): body for operation, body in OF_IDENTITY.items()},
    "PUT /v1/repositories/{}/policy": {"version": "1", "statements": [STATEMENT]},
    "PUT /v1/repositories/{}/lifecycle-policy": {"rules": [RULE]},
    "PUT /v1/repositories/{}/encryption-binding": {"kms_key": "platform"},
    "PUT /v1/repositories/{}/tags/{}": {"digest": UNKNOWN_DIGEST},
    "POST /v1/clusters/{}/change-credentials": {"password": "x"},
    "POST /v1/clusters/{}/restore": {"name": "x", "target_time": "2026-01-01T00:00:00Z"},
    "POST /v1/clusters/{}/backups/{}/restore": {"name": "x"},
    "POST /v1/keys/{}/encrypt": {"plaintext": "YQ=="},
    "POST /v1/keys/{}/decrypt": {"ciphertext": "YQ=="},
    "POST /v1/topics/{}/messages": {"message": "x"},
    "POST /v1/topics/{}/subscriptions": {"protocol": "http", "endpoint": "http://192.0.32.7/"},
    "POST /v1/queues/{}/messages": {"body": "x"},
    "POST /v1/queues/{}/messages/lease": {},
    "POST /v1/queues/{}/messages/acknowledge": {"lease_ids": ["x"]},
    "POST /v1/queues/{}/messages/extend": {"lease_ids": ["x"], "lease_seconds": 9},
    "PUT /v1/buckets/{}/cors": {
        "cors_rules": [{"allowed_origins": ["*"], "allowed_methods": ["GET"]}]
    },
    "POST /v1/buckets/{}/multipart-uploads": {"key": "x"},
    "POST /v1/buckets/{}/multipart-uploads/{}/complete": {
        "parts": [{"part_number": 1, "etag": "x"}]
    },
    "POST /v1/internet-gateways/{}/attach": {"vpc": "vpc-0"},
    "POST /v1/repositories/{}/images/restore": {"digests": [UNKNOWN_DIGEST]},
}
"""What is sent where ``{}`` would be refused before the id is looked up."""
OF_PERSONS: Final = ("/v1/organizations", "/v1/users/me")
CHOSEN: Final = ("{tag}", "{name}", "{key}", "{part_number}")
"""Parameters that a caller chooses: what is put under them is made."""
OF_ALL: Final = ("/v1/quotas/{name}",)
"""Parameters that mean the same for every account."""


Told = tuple[int, str, dict[str, str]]
"""Status, body and headers of an answer."""


class Place(NamedTuple):
    """One parameter of one operation."""

    operation: Operation
    key: str
    """The path up to it, whatever the parameters before are called."""
    number: int


def places() -> Iterator[Place]:
    """Yield every parameter of every operation that is built."""
    for operation in OPERATIONS:
        if operation.is_built and not operation.is_public:
            for number, found in enumerate(re.finditer(r"\{\w+\}", operation.path)):
                prefix = operation.path[: found.end()]
                is_chosen = operation.method == "PUT" and prefix.endswith(CHOSEN)
                if is_chosen or prefix in OF_ALL:
                    continue
                yield Place(operation, re.sub(r"\{\w+\}", "{}", prefix), number)


PLACES: Final = tuple(places())


def filled(place: Place, tenant: Tenant, other: str | None = None) -> str:
    """Return the path with a tenant's own ids, but for the one that is `other`."""
    path, parts = "", re.split(r"(\{\w+\})", place.operation.path)
    number = 0
    for part in parts:
        if part.startswith("{"):
            key = re.sub(r"\{\w+\}", "{}", "".join(parts[: parts.index(part) + 1]))
            part = other if other and number == place.number else tenant.ids[key]  # noqa: PLW2901
            number += 1
        path += part
    return path


def token_of(operation: Operation, tenant: Tenant) -> str:
    """Return the token of those who may use an operation: a person, or a program."""
    is_on_people = operation.path.startswith("/v1/users") and operation.method != "GET"
    is_of_persons = is_on_people or operation.path.startswith(OF_PERSONS)
    return tenant.person_token if is_of_persons else tenant.program_token


PATHS: Final[dict[Endpoint, tuple[str, ...]]] = {
    Endpoint.BASE: (),
    Endpoint.CATALOG: (),
    Endpoint.TAGS: ("tags/list",),
    Endpoint.UPLOADS: ("blobs/uploads/",),
    Endpoint.UPLOAD: ("blobs/uploads/{upload}",),
    Endpoint.BLOB: ("blobs/{blob}",),
    Endpoint.MANIFEST: ("manifests/{digest}", "manifests/{tag}"),
    Endpoint.REFERRERS: ("referrers/{digest}",),
}
"""What follows the name, for each endpoint of the data plane; tenants' things are in braces."""
NOTHING: Final = {
    "upload": UNKNOWN,
    "blob": UNKNOWN_DIGEST,
    "digest": UNKNOWN_DIGEST,
    "tag": "of-nobody",
    "asked": "of-nobody",
}


def requests() -> Iterator[tuple[str, str]]:
    """Yield every method and path of the data plane."""
    for endpoint, methods in ROUTES.items():
        for argument in PATHS[endpoint]:  # KeyError: say there what the new endpoint's path is
            yield from ((method, argument) for method in methods)


def told(answer: httpx.Response) -> Told:
    """Return an answer without what differs from one to the next."""
    headers = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "date")}
    body = answer.text.replace(answer.headers.get("x-request-id", "\0"), "")
    return answer.status_code, body, headers
