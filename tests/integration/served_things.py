"""One of each thing for the tenants of a served install, each noted by its place in the table."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from cloudcore.billing.closing import month_after, month_of
from cloudcore.billing.invoice_rows import Invoice, Line, add_invoice
from cloudcore.clock import uuid7
from cloudcore.compute.instance_pool import Instance, Version
from cloudcore.compute.rows import INSTANCE_ROWS
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.backups.rows import BACKUPS
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS as IDENTITIES
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from cloudcore.resources.resource import Record, Reference
from registry.oci.media_types import OCI_MANIFEST
from registry.settings.node import NodeSettings
from tests import described
from tests.tenants import allow, let

if TYPE_CHECKING:
    from tests.integration.served_world import Served, Tenant

MESSAGE: Final = {
    "from": "ada@mail-0.example.com",
    "to": ["bob@example.com"],
    "subject": "Hello",
    "text": "Hello.",
}
"""A message that the tenants may send."""
BALANCER: Final = {
    "name": "held",
    "subnet": "subnet-0",
    "listeners": [{"port": 80, "protocol": "tcp", "backend": "held"}],
    "backends": [{"name": "held", "protocol": "tcp"}],
}
"""A load balancer that the tenants may have."""
CLUSTER: Final[dict[str, object]] = {"name": "held", "size": {"memory_mb": 256}}
"""A database cluster that is run here."""
_FAR: Final = Node("far", Path("/nowhere"), ("databases", "backups"))
"""Another machine: nobody asks this one which programs it has."""


class Furnisher:
    """Makes things of one tenant."""

    def __init__(self, served: Served, tenant: Tenant) -> None:
        self.served = served
        self.tenant = tenant
        self.ids = tenant.ids

    async def ask(
        self, method: str, place: str, body: object = None, *statuses: int, by: str = ""
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request to a place, by default as the tenant's program; return what it answers."""
        path = self.tenant.path(place)
        answer = await self.served.ask(method, path, body, token=by or self.tenant.program_token)
        assert answer.status_code in (statuses or (200, 201, 202)), (path, answer.text)
        return answer.json() if answer.content else None

    async def make(
        self, place: str, body: object, *, by: str = "", key: str = "id", at: str = ""
    ) -> Any:  # noqa: ANN401 - JSON
        """Make something in the list of a place, note its id, and return its record."""
        record = next(iter((await self.ask("POST", place, body, by=by)).values()))
        self.ids[at or f"{place}/{{}}"] = record[key]
        return record

    def row(self) -> dict[str, Any]:
        """Return the fields that each record of the tenant has, of a new one."""
        now = self.served.clock()
        account_id = self.tenant.account_id
        made = dict.fromkeys(Record.__struct_fields__, now)
        return {**made, "id": uuid7(now), "account_id": account_id, "region": "local"}


async def furnish(served: Served, tenant: Tenant) -> None:
    """Make one of each thing in a tenant, and note its id by its place in the table."""
    make = Furnisher(served, tenant)
    await _furnish_identity(make)
    kept = await make.make("/v1/keys", {"name": "key"})
    make.ids["/v1/key-usage/{}"] = kept["id"]
    for number in (0, described.NEW):
        named = {"name": f"vpc-with-uplink-{number}"}
        await served.make(
            "/v1/vpcs", {**named, "cidr_ipv4": "10.0.0.0/16"}, token=tenant.program_token
        )
        await make.make("/v1/internet-gateways", named)
        await make.ask("POST", "/v1/internet-gateways/{}/attach", {"vpc": named["name"]}, 200)
    for path, sample in described.samples().items():
        await make.make(path, sample)
    await _furnish_interface(make)
    asked = {"name": "held", "domains": [f"{tenant.handle}.granted.test"]}
    await make.make("/v1/certificates", asked)
    await make.make("/v1/load-balancers", BALANCER)
    await _furnish_pool(make)
    await _furnish_billing(make)
    await _furnish_mail(make)
    await _furnish_bucket(make)
    await _furnish_cluster(make)
    await _furnish_registry(make)


async def _furnish_identity(make: Furnisher) -> None:
    served, tenant = make.served, make.tenant
    person, organization = tenant.person_token, "/v1/organizations/{}"
    member, member_token = await served.add_person(f"member-of-{tenant.handle}")
    make.ids |= {
        organization: tenant.organization_id,
        f"{organization}/members/{{}}": member.id,
        "/v1/accounts/{}": tenant.account_id,
        "/v1/users/{}": member.id,
        "/v1/roles/{}/assignments/{}": member.id,
    }
    await served.join(tenant.organization_id, member.email, member_token, by=person)
    pending = {"email": f"nobody-of-{tenant.handle}@example.org"}
    await make.make(f"{organization}/invitations", pending, by=person)
    await make.ask("POST", f"{organization}/switch", None, 200, by=person)
    program = await make.make("/v1/service-accounts", {"name": "owner"})
    await make.make("/v1/service-accounts/{}/access-keys", {})
    trusted = {"effect": "allow", "principals": [tenant.account_id]}
    trust = {"version": "1", "statements": [trusted]}
    await make.make("/v1/roles", {"name": "role", "trust_policy": trust})
    await make.ask("POST", "/v1/roles/{}/assignments", {"user": member.email})
    login = {"name": "Login", "issuer": "https://login.example.com", "client_id": "entrepot"}
    provider = await make.make(f"{organization}/identity-providers", login, by=person)
    group = {"identity_provider": provider["id"], "group": "devs"}
    await make.make("/v1/roles/{}/group-assignments", group)
    document = {"version": "1", "statements": [allow("iam:GetRole")]}
    await make.make("/v1/policies", {"name": "policy", "document": document})
    await make.make("/v1/policies/{}/attachments", {"service_account": program["id"]})
    laptop = {"name": "laptop", "role": "admin"}
    await make.make("/v1/users/me/container-passwords", laptop, by=person)


async def _furnish_interface(make: Furnisher) -> None:
    """Let something have an address of the sample of a subnet."""
    account_id, subnet = make.tenant.account_id, make.ids["/v1/subnets/{}"]
    owner, now = f"crn:compute:local:{account_id}:instance/1", make.served.clock()
    place = Interfaces().place
    made = await make.served.database.write(place, account_id, "local", subnet, (), owner, now)
    make.ids["/v1/network-interfaces/{}"] = made.id


async def _furnish_cluster(make: Furnisher) -> None:
    """Add a cluster, with the row of a backup; nothing runs."""
    served, tenant = make.served, make.tenant
    made = await make.make("/v1/clusters", {**CLUSTER, "bucket": make.ids["/v1/buckets/{}"]})
    found = await served.database.read(CLUSTERS.find, tenant.account_id, made["id"])
    assert found is not None
    running = structs.replace(
        found,
        status="active",
        version=15,
        has_data=True,
        applied=1,
        node=_FAR.name,
        port=20_000 if tenant.handle == "acme" else 20_001,
    )
    await served.database.write(node_rows.claim, _FAR, "far", 0)
    await served.database.write(CLUSTERS.save, running)
    make.ids["/v1/clusters/{}/backups/{}"] = (await add_backup(served, tenant)).id


async def add_backup(served: Served, tenant: Tenant) -> Backup:
    """Add the row of a base backup that has succeeded."""
    new = Backup(
        **Furnisher(served, tenant).row(),
        cluster=Reference(tenant.ids["/v1/clusters/{}"], "held"),
        node=_FAR.name,
        kind="base",
        status="succeeded",
        label=f"of {tenant.handle}",
        completed_at=served.clock(),
    )
    return await served.database.write(BACKUPS.add, new)


async def _furnish_pool(make: Furnisher) -> None:
    """Add an instance pool, with the row of an instance; nothing runs."""
    pool = await make.make("/v1/instance-pools", {"name": "instance-pool-0", "image": "web:1"})
    digest = f"sha256:{'0' * 64}"
    new = Instance(
        **make.row(),
        pool=Reference(pool["id"], pool["name"]),
        node=NodeSettings().name,
        image="web:1",
        image_digest=digest,
        version=Version(digest, [], {}, 256, 250),
        memory_mb=256,
        cpu_millis=250,
    )
    await make.served.database.write(INSTANCE_ROWS.add, new)
    make.ids["/v1/instance-pools/{}/instances/{}"] = new.id


async def _furnish_billing(make: Furnisher) -> None:
    """Add two payment methods, of which the first is the default, and an invoice."""
    served, tenant = make.served, make.tenant
    card = "tok_visa" if served.billing.processor.name == "embedded" else "pm_card_visa"
    for _ in range(2):
        await make.make("/v1/payment-methods", {"type": "card", "token": card})
    now = served.clock()
    invoice = Invoice(
        id=uuid7(now),
        organization_id=tenant.organization_id,
        period_start=month_after(month_of(now), -3),
        period_end=month_after(month_of(now), -2),
        currency="EUR",
        total="1.50",
        status="open",
        attempts=0,
        due_at=now,
        charge_at=None,
        paid_at=None,
        created_at=now,
        updated_at=now,
    )
    used = (tenant.account_id, "local", "registry.storage", invoice.period_start)
    line = Line(*used, "GiB-month", "3", "0.50", "1.50")
    await served.database.write(add_invoice, invoice, [line])
    make.ids["/v1/invoices/{}"] = invoice.id


async def _furnish_mail(make: Furnisher) -> None:
    """Make the sample of a domain a verified one, and have a message accepted that is from it."""
    served, of = make.served, (make.tenant.account_id, make.ids["/v1/identities/{}"])

    def verify(tx: Connection) -> SendingIdentity:
        found = IDENTITIES.lock(tx, *of)
        return IDENTITIES.save(
            tx, structs.replace(found, status="verified", verified_at=found.created_at)
        )

    identity = await served.database.write(verify)
    if served.email.sending.sender is None:
        return
    await make.make("/v1/messages", {**MESSAGE, "from": f"ada@{identity.value}"})
    if served.email.dedicated_ips:
        await make.make("/v1/dedicated-ips", {})


async def _furnish_bucket(make: Furnisher) -> None:
    handle, bucket = make.tenant.handle, "/v1/buckets/{}"
    key = f"key-of-{handle}"
    await make.make("/v1/buckets", {"name": f"bucket-of-{handle}"}, key="name")
    rules = [{"allowed_origins": ["*"], "allowed_methods": ["GET"]}]
    part = f"{bucket}/multipart-uploads/{{}}/parts/{{}}"
    make.ids |= {f"{bucket}/objects/{{}}": key, part: "1"}
    await make.ask("PUT", f"{bucket}/cors", {"cors_rules": rules}, 200)
    await make.ask("PUT", f"{bucket}/objects/{{}}", b"bytes", 200)
    await make.make(f"{bucket}/multipart-uploads", {"key": key}, key="upload_id")
    await make.ask("PUT", part, b"part", 200)


async def _furnish_registry(make: Furnisher) -> None:
    tenant, one, tagged = make.tenant, "/v1/repositories/{}", f"of-{make.tenant.handle}"
    await make.make("/v1/repositories", {"name": "app"})
    document = {"version": "1", "statements": [let(tenant.account_id)]}
    await make.ask("PUT", f"{one}/policy", document, 200)
    tenant.login = (await make.ask("POST", "/v1/authorization-token"))["password"]
    bearer = await _push_image(make.served, tenant, tagged)
    image = f"{one}/images/{{}}"
    make.ids |= {
        image: tenant.digest,
        f"{one}/tags/{{}}": tagged,
        f"{image}/pins/{{}}": tagged,
    }
    await make.ask("PUT", f"{image}/pins/{{}}", {}, 201)
    topic = await make.make("/v1/topics", {"name": "images"})
    hook = {"protocol": "https", "endpoint": "https://192.0.32.7/hook"}
    await make.make("/v1/topics/{}/subscriptions", hook)
    await make.make("/v1/event-rules", {"topic": topic["crn"], "event_types": ["registry.*"]})
    mirror = {"prefix": "mirror", "upstream_url": "https://registry.example.com"}
    await make.make("/v1/pull-through-cache-rules", mirror)
    rules = [{"priority": 1, "selector": "untagged", "older_than_days": 1}]
    await make.ask("PUT", f"{one}/lifecycle-policy", {"rules": rules}, 200)
    for bound in ("/v1", one):
        refused = await make.ask(
            "PUT", f"{bound}/encryption-binding", {"kms_key": "platform"}, 200, 400
        )
        assert "error" not in refused or "sealing_disabled" in json.dumps(refused)
    await make.make(f"{one}/lifecycle-policy/runs", None)
    await make.make("/v1/garbage-collection/runs", None)
    rewrap = f"{one}/encryption-binding/rewrap"
    await make.make(rewrap, None, at=f"{rewrap}/runs/{{}}")
    uploads = f"/v2/{tenant.handle}/app/blobs/uploads/"
    opened = await make.served.ask("POST", uploads, token=bearer)
    tenant.upload_id = opened.headers["location"].rpartition("/")[2]
    recorded = await make.ask("GET", "/v1/audit-events?limit=1")
    make.ids["/v1/audit-events/{}"] = recorded["events"][0]["id"]


async def _push_image(served: Served, tenant: Tenant, tag: str) -> str:
    """Push an image of one layer under a tag; return the bearer that it was pushed with."""
    name = f"{tenant.handle}/app"
    bearer = await served.bearer(tenant, f"repository:{name}:*")
    blob = f"layer of {tenant.handle}".encode()
    tenant.blob = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    path = f"/v2/{name}/blobs/uploads/?digest={tenant.blob}"
    pushed = await served.ask("POST", path, blob, token=bearer)
    assert pushed.status_code == 201, pushed.text
    descriptor = {"mediaType": "application/x", "digest": tenant.blob, "size": len(blob)}
    manifest = {"schemaVersion": 2, "config": descriptor, "layers": [descriptor]}
    body = json.dumps(manifest | {"mediaType": OCI_MANIFEST}).encode()
    tenant.digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    kind = {"Content-Type": OCI_MANIFEST}
    path = f"/v2/{name}/manifests/{tag}"
    put = await served.ask("PUT", path, body, token=bearer, headers=kind)
    assert put.status_code == 201, put.text
    return bearer
