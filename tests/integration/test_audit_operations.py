"""Every operation of ``/v1`` that changes something leaves one event, and a replay none.

Driven by the table of operations: one that is added fails here until there is a request for it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import bindparam, func, select

from cloudcore.audit.rows import audit_events
from cloudcore.db.base import Connection, Row
from cloudcore.db.statement import Statement, page
from cloudcore.iam.passwords import hash_password
from tests import described
from tests.integration.acting_persons import set_password
from tests.integration.id_places import RULE, STATEMENT, Place, filled
from tests.integration.keyed_requests import DOCUMENT, Asked, asked, end_runs
from tests.integration.served_things import add_backup
from tests.integration.served_world import Served
from tests.passwords import CHEAP
from tests.spec.operations import OPERATIONS, Operation

CHANGES: Final = {
    each.place: each
    for each in OPERATIONS
    if each.is_built and each.action is not None and each.method != "GET"
}
READS: Final = {
    "POST /v1/repositories/{}/lifecycle-policy/preview",
    "POST /v1/pull-through-cache-rules/{}/test",
    "POST /v1/policy-simulations",
    "POST /v1/templates/{}/preview",
}
"""They change nothing."""
OF_SERVERS: Final = {"POST /v1/clusters/{}/change-credentials"}
"""It succeeds where a database server answers (`test_cluster_credentials`)."""
MESSAGES: Final = {
    "POST /v1/messages",
    "POST /v1/queues/{}/messages",
    "POST /v1/queues/{}/messages/lease",
    "POST /v1/queues/{}/messages/acknowledge",
    "POST /v1/queues/{}/messages/extend",
    "POST /v1/topics/{}/messages",
    "PUT /v1/buckets/{}/objects/{}",
    "DELETE /v1/buckets/{}/objects/{}",
    "PUT /v1/buckets/{}/multipart-uploads/{}/parts/{}",
}
"""Messages and objects pass by the thousand; the log has who made, changed, purged and deleted
their queue, topic or bucket."""
PART: Final = hashlib.md5(b"part").hexdigest()
PASSWORD: Final = "a long enough password"

_COUNT: Final = Statement(select(func.count()).select_from(audit_events))
_e = audit_events.c
_LAST: Final = Statement(
    page(
        select(_e.action, _e.owner_id, _e.resource, _e.principal, _e.source_name, _e.request_id)
        .where(_e.request_id == bindparam("request_id"))
        .order_by(_e.occurred_at)
    )
)


async def count(served: Served) -> int:
    row = await served.database.read(lambda tx: tx.row(_COUNT))
    assert row is not None
    return int(row[0])


async def events_of(served: Served, request_id: str) -> list[Row]:
    def read(tx: Connection) -> list[Row]:
        return list(tx.rows(_LAST, request_id=request_id, limit=9))

    return await served.database.read(read)


def path_of(operation: Operation, served: Served) -> str:
    """Return the path with the ids of acme's things."""
    return filled(Place(operation, "", -1), served.acme)


async def other_requests(served: Served) -> dict[str, Asked]:
    """Return a request for each other change, in an order in which all of them succeed."""
    acme, owner, program = served.acme, served.acme.person_token, served.acme.program_token
    new = {"email": "brief@example.org", "organization": acme.organization_id}
    user = (await served.make("/v1/users", new, token=owner))["id"]
    made = await served.make("/v1/organizations", {"name": "Brief"}, token=owner)
    spare = await served.make("/v1/repositories", {"name": "spare"}, token=program)
    named = {"name": "spare", "document": DOCUMENT}
    policy = await served.make("/v1/policies", named, token=program)
    hashed = hash_password(PASSWORD, CHEAP)
    await served.database.write(set_password, acme.person.id, hashed)
    changed = {"current_password": PASSWORD, "password": "another long password"}
    trusted = {"effect": "allow", "principals": [acme.account_id]}
    member = acme.ids["/v1/organizations/{}/members/{}"]
    key, clear = f"/v1/keys/{acme.ids['/v1/keys/{}']}", {"plaintext": "YQ=="}
    bound = {"kms_key": acme.ids["/v1/keys/{}"]}
    sealed = (await served.ask("POST", f"{key}/encrypt", clear, token=program)).json()
    identity = {"value": "spare.example.com", "kind": "domain"}
    spare_vpc = await served.make(
        "/v1/vpcs", {"name": "spare", "cidr_ipv4": "10.0.0.0/16"}, token=program
    )
    spare_subnet = await served.make(
        "/v1/subnets",
        {"name": "spare", "vpc": "vpc-0", "cidr_ipv4": "10.0.255.0/24"},
        token=program,
    )
    spare_identity = await served.make("/v1/identities", identity, token=program)
    spare_bucket = await served.make("/v1/buckets", {"name": "spare-bucket"}, token=program)
    spare_backup = await add_backup(served, acme)
    cluster = f"/v1/clusters/{acme.ids['/v1/clusters/{}']}"
    bucket = f"/v1/buckets/{acme.ids['/v1/buckets/{}']}/multipart-uploads"
    uploads = [
        (await served.make(bucket, {"key": "key"}, token=program))["upload_id"] for _ in range(2)
    ]
    await served.ask("PUT", f"{bucket}/{uploads[0]}/parts/1", b"part", token=program)
    return {
        "POST /v1/authorization-token": Asked(program),
        "PUT /v1/quotas/{}": Asked(program, {"limit": 900}, path="/v1/quotas/queues"),
        "DELETE /v1/quotas/{}": Asked(program, path="/v1/quotas/queues"),
        "PATCH /v1/repositories/{}": Asked(program, {"description": "New."}),
        "PUT /v1/repositories/{}/tags/{}": Asked(program, {"digest": acme.digest}),
        "DELETE /v1/repositories/{}/tags/{}": Asked(program),
        "PUT /v1/repositories/{}/policy": Asked(
            program, {"version": "1", "statements": [STATEMENT]}
        ),
        "DELETE /v1/repositories/{}/policy": Asked(program),
        "PUT /v1/repositories/{}/lifecycle-policy": Asked(program, {"rules": [RULE]}),
        "DELETE /v1/repositories/{}/lifecycle-policy": Asked(program),
        "PUT /v1/encryption-binding": Asked(program, bound),
        "DELETE /v1/encryption-binding": Asked(program),
        "PUT /v1/repositories/{}/encryption-binding": Asked(program, bound),
        "DELETE /v1/repositories/{}/encryption-binding": Asked(program),
        "PUT /v1/repositories/{}/images/{}/pins/{}": Asked(program, {}),
        "DELETE /v1/repositories/{}/images/{}/pins/{}": Asked(program),
        "DELETE /v1/repositories/{}/images/{}": Asked(program),
        "DELETE /v1/repositories/{}": Asked(program, path=f"/v1/repositories/{spare['id']}"),
        "POST /v1/keys/{}/encrypt": Asked(program, clear),
        "POST /v1/keys/{}/decrypt": Asked(program, {"ciphertext": sealed["ciphertext"]}),
        "POST /v1/keys/{}/generate-data-key": Asked(program),
        "PATCH /v1/instance-pools/{}": Asked(program, {"size": 2}),
        "DELETE /v1/instance-pools/{}": Asked(program),
        "PATCH /v1/clusters/{}": Asked(program, {"tags": {"a": "b"}}),
        "DELETE /v1/clusters/{}/backups/{}": Asked(
            program, path=f"{cluster}/backups/{spare_backup.id}?cascade=true"
        ),
        "DELETE /v1/clusters/{}": Asked(program, path=f"{cluster}?cascade=true"),
        "PATCH /v1/certificates/{}": Asked(program, {"tags": {"a": "b"}}),
        "DELETE /v1/certificates/{}": Asked(program),
        "PATCH /v1/certificate-settings": Asked(program, {"private_key_export": False}),
        "PATCH /v1/load-balancers/{}": Asked(program, {"tags": {"a": "b"}}),
        "DELETE /v1/load-balancers/{}": Asked(program),
        "PATCH /v1/buckets/{}": Asked(program, {"tags": {"a": "b"}}),
        "PUT /v1/buckets/{}/cors": Asked(
            program, {"cors_rules": [{"allowed_origins": ["*"], "allowed_methods": ["GET"]}]}
        ),
        "DELETE /v1/buckets/{}/cors": Asked(program),
        "POST /v1/buckets/{}/multipart-uploads/{}/complete": Asked(
            program,
            {"parts": [{"part_number": 1, "etag": PART}]},
            path=f"{bucket}/{uploads[0]}/complete",
        ),
        "DELETE /v1/buckets/{}/multipart-uploads/{}": Asked(program, path=f"{bucket}/{uploads[1]}"),
        "DELETE /v1/buckets/{}": Asked(program, path=f"/v1/buckets/{spare_bucket['name']}"),
        "PATCH /v1/topics/{}/subscriptions/{}": Asked(program, {"raw_message_delivery": True}),
        "DELETE /v1/topics/{}/subscriptions/{}": Asked(program),
        **{
            f"{method} {each.path}/{{}}": Asked(program, body)
            for each in described.RESOURCES
            for verb, method, body in (
                ("update", "PATCH", described.change_of(each)),
                ("delete", "DELETE", None),
            )
            if verb in each.methods
        },
        "PATCH /v1/dedicated-ips/{}": Asked(program, {"ip_pool": None}),
        "DELETE /v1/identities/{}": Asked(program, path=f"/v1/identities/{spare_identity['id']}"),
        "DELETE /v1/vpcs/{}": Asked(program, path=f"/v1/vpcs/{spare_vpc['id']}"),
        "DELETE /v1/subnets/{}": Asked(program, path=f"/v1/subnets/{spare_subnet['id']}"),
        "DELETE /v1/topics/{}": Asked(program),
        "DELETE /v1/templates/{}": Asked(program),
        "DELETE /v1/keys/{}": Asked(program),
        "PATCH /v1/payment-methods/{}": Asked(program, {"display_name": "Ours"}),
        "DELETE /v1/payment-methods/{}": Asked(program),
        "PATCH /v1/registry-settings": Asked(program, {"undelete_days": 3}),
        "DELETE /v1/event-rules/{}": Asked(program),
        "PATCH /v1/pull-through-cache-rules/{}": Asked(program, {"enabled": False}),
        "DELETE /v1/pull-through-cache-rules/{}": Asked(program),
        "PATCH /v1/policies/{}": Asked(program, {"document": DOCUMENT}),
        "DELETE /v1/policies/{}/attachments/{}": Asked(program),
        "DELETE /v1/policies/{}": Asked(program, path=f"/v1/policies/{policy['id']}"),
        "PATCH /v1/roles/{}": Asked(
            program, {"trust_policy": {"version": "1", "statements": [trusted]}}
        ),
        "DELETE /v1/roles/{}/assignments/{}": Asked(program),
        "DELETE /v1/roles/{}/group-assignments/{}": Asked(program),
        "DELETE /v1/roles/{}": Asked(program),
        "PATCH /v1/service-accounts/{}/access-keys/{}": Asked(program, {"status": "inactive"}),
        "DELETE /v1/service-accounts/{}/access-keys/{}": Asked(program),
        "PATCH /v1/service-accounts/{}": Asked(program, {"description": "New."}),
        "DELETE /v1/service-accounts/{}": Asked(program),
        "PATCH /v1/accounts/{}": Asked(program, {"auto_create_repositories": False}),
        "PATCH /v1/users/{}": Asked(owner, {"status": "active"}, path=f"/v1/users/{user}"),
        "DELETE /v1/users/{}": Asked(owner, path=f"/v1/users/{user}"),
        "DELETE /v1/organizations/{}/invitations/{}": Asked(owner),
        "PATCH /v1/organizations/{}/identity-providers/{}": Asked(owner, {"status": "active"}),
        "DELETE /v1/organizations/{}/identity-providers/{}": Asked(owner),
        "PATCH /v1/organizations/{}/members/{}": Asked(owner, {"role": "member"}),
        "DELETE /v1/organizations/{}/members/{}": Asked(
            owner, path=f"/v1/organizations/{acme.organization_id}/members/{member}"
        ),
        "PATCH /v1/organizations/{}": Asked(owner, {"name": "Acme"}),
        "DELETE /v1/organizations/{}": Asked(owner, path=f"/v1/organizations/{made['id']}"),
        "DELETE /v1/users/me/container-passwords/{}": Asked(owner),
        "PUT /v1/users/me/password": Asked(owner, changed),
    }


async def delete_restored(served: Served) -> None:
    """Delete the clusters that are restored from the backups of another: they are held for them."""
    token = served.acme.program_token
    listed = (await served.ask("GET", "/v1/clusters", token=token)).json()["clusters"]
    for each in listed:
        if each["name"] in ("restored", "again"):
            answer = await served.ask("DELETE", f"/v1/clusters/{each['id']}", token=token)
            assert answer.status_code == 202, answer.text


async def test_every_change_leaves_one_event(served: Served) -> None:
    """Of the caller, with the action and the resource that was authorized; a replay leaves none."""
    keyed = {f"POST {path}": request for path, request in (await asked(served)).items()}
    others = await other_requests(served)
    keyed = {place: request for place, request in keyed.items() if place not in MESSAGES}
    assert keyed.keys() | others.keys() == CHANGES.keys() - READS - MESSAGES - OF_SERVERS
    # Who joins is known where it is joined, though the resource is the person.
    # A password is told to the account of its role, though the resource is the person too.
    owners = {
        "POST /v1/organizations/{}/accept": served.acme.organization_id,
        "POST /v1/users/me/container-passwords": served.acme.account_id,
        "DELETE /v1/users/me/container-passwords/{}": served.acme.account_id,
    }
    unchanging = {
        "POST /v1/repositories/{}/images/restore",  # the image is not deleted
        "POST /v1/keys/{}/enable",  # the key is enabled
        "PATCH /v1/dedicated-ips/{}",  # it is in no pool
    }
    wrong: dict[str, Any] = {}
    for place, request in {**keyed, **others}.items():
        operation = CHANGES[place]
        path = request.path or path_of(operation, served)
        await end_runs(served)
        if place == "DELETE /v1/clusters/{}":
            await delete_restored(served)
        headers = {"Idempotency-Key": "again"} if operation.takes_key else {}
        for is_replay in (False, True) if operation.takes_key else (False,):
            before = await count(served)
            answer = await served.ask(
                operation.method, path, request.body, token=request.token, headers=headers
            )
            added = await count(served) - before
            events = await events_of(served, answer.headers["x-request-id"])
            expected = 0 if is_replay or place in unchanging else 1
            is_right = answer.is_success and added == len(events) == expected
            if is_right and expected:
                action, owner_id, resource, principal, source, _ = events[0]
                is_right = (
                    action == operation.action
                    and owner_id == owners.get(place, resource.split(":")[3])
                    and principal.startswith("crn:iam::")
                    and source
                )
            if not is_right:
                wrong[place] = (answer.status_code, answer.text[:300], added, events)
    assert wrong == {}


async def test_a_read_and_a_refused_change_leave_none(served: Served) -> None:
    before = await count(served)
    acme, stranger = served.acme, served.globex.program_token
    repository = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}"
    await served.ask("GET", repository, token=acme.program_token)
    preview = f"{repository}/lifecycle-policy/preview"
    await served.ask("POST", preview, {}, token=acme.program_token)
    refused = await served.ask("DELETE", repository, token=stranger)
    failed = await served.ask("DELETE", repository, token=acme.program_token)  # it has images
    assert (refused.status_code, failed.status_code) == (404, 409)
    assert await count(served) == before
