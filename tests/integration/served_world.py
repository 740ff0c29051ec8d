"""All of ``entrepot serve`` in this process, with two tenants who have one of each thing.

Both planes are made by the composition root itself, so an operation added later is here by itself.
What is asked goes over ASGI; every statement that runs is noted with its parameters.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple, cast

import httpx
from msgspec import structs

from cloudcore.audit.log import AuditLog
from cloudcore.billing.closing import month_after, month_of
from cloudcore.billing.family import BILLING
from cloudcore.billing.invoice_rows import Invoice, Line, add_invoice
from cloudcore.billing.needs import BillingNeeds
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.compute.instance_pool import Instance, Version
from cloudcore.compute.rows import INSTANCE_ROWS
from cloudcore.databases.backups.backup import Backup
from cloudcore.databases.backups.rows import BACKUPS
from cloudcore.databases.clusters.rows import CLUSTERS
from cloudcore.db.base import Connection
from cloudcore.db.opening import is_postgresql, open_database
from cloudcore.email.family import EMAIL
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sender_rows import IDENTITY_ROWS as IDENTITIES
from cloudcore.iam.audit import AUDITOR
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.names import iam_crn
from cloudcore.identity.needs import LAST_USES
from cloudcore.identity.rows import organizations
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.organizations import MEMBERS, Membership, Organization
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment
from cloudcore.identity.rows.service_accounts import ServiceAccount
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.rows.users import User
from cloudcore.identity.services import service_accounts
from cloudcore.identity.services.accounts import FirstIds, Founder, found_account
from cloudcore.identity.services.users import add_person
from cloudcore.identity.tokens.access_tokens import AccessTokens
from cloudcore.identity.tokens.signing_keys import SigningKeys
from cloudcore.keyring import Keyring, create_root_key, load_keyring
from cloudcore.kms.family import KMS
from cloudcore.kms.needs import KmsNeeds
from cloudcore.metering.needs import METER, Meter
from cloudcore.network.network_interfaces import Interfaces
from cloudcore.nodes import rows as node_rows
from cloudcore.nodes.node import Node
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.resources.resource import Reference
from cloudcore.serving.dispatch import Application
from cloudcore.web.app import ControlPlane
from cloudcore.web.route_spec import RouteSpec
from registry.blobstore.disk.folders import SHARDS
from registry.composition.main import Registry, prepare
from registry.composition.planes import dispatcher, planes_of
from registry.composition.serve import SERVE
from registry.oci.media_types import OCI_MANIFEST
from registry.services.access.bearers import KEY_KINDS
from registry.settings.email import EmailSettings
from registry.settings.node import NodeSettings
from registry.settings.settings import Settings
from tests import described
from tests.databases import planted
from tests.inprocess import ManualClock
from tests.integration.noting_database import NotingDatabase
from tests.postgresql_rows import Rows, put_back, rows_of
from tests.tenants import Statement, document

HOST: Final = "registry.test"
URL: Final = f"http://{HOST}"
KEPT_PASSWORD: Final = f"scrypt$10$1$1${'A' * 24}${'A' * 44}"  # nobody's
HOUR: Final = 3600 * MICROSECONDS


@dataclass
class Tenant:
    """An account and its organization, who acts in them, and one of each thing."""

    handle: str
    account_id: str
    organization_id: str
    person: User
    person_token: str
    program_token: str
    access_key_id: str
    secret: str
    login: str = ""
    """Password of a container login."""
    ids: dict[str, str] = field(default_factory=dict)
    """By the place of the parameter in the table of operations."""
    digest: str = ""
    blob: str = ""
    upload_id: str = ""


_ADDRESSES: Final = ",".join(f"198.51.100.{number}" for number in range(256))
"""What the tenants may get to send from."""
MESSAGE: Final = {
    "from": "ada@mail-0.example.com",
    "to": ["bob@example.com"],
    "subject": "Hello",
    "text": "Hello.",
}
"""A message that the tenants may send."""


@dataclass
class Served:
    """The application, the client in front of it, and its tenants."""

    app: Application
    database: NotingDatabase
    keyring: Keyring
    tokens: AccessTokens
    clock: ManualClock
    specs: list[RouteSpec]
    """Of the control plane's routes."""
    auditor: AuditLog
    kms: KmsNeeds
    notifications: NotificationNeeds
    certificates: CertificateNeeds
    billing: BillingNeeds
    email: EmailNeeds
    uses: LastUses
    meter: Meter
    acme: Tenant = field(init=False)
    globex: Tenant = field(init=False)

    @cached_property
    def without_body(self) -> frozenset[str]:
        """Return the operations that take no body, as `tests.spec.operations` has their places."""
        return frozenset(
            f"{spec.method} {re.sub('{[^}]*}', '{}', spec.path)}"
            for spec in self.specs
            if not spec.takes_body
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request; a `body` that is no bytes is sent as JSON."""
        given = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None and not isinstance(body, bytes):
            given["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        # A port of its own: a connection that repeats itself is told so.
        self._port = (self._port + 1) % 60_000
        transport = httpx.ASGITransport(self.app, client=("198.51.100.7", self._port))
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            answer = await client.request(
                method, path, content=body or b"", headers=given | (headers or {})
            )
        assert answer.status_code < 500, (method, path, answer.text)
        return answer

    async def submit(self, path: str, fields: str | bytes, **headers: str) -> httpx.Response:
        """Post a form, as nobody."""
        body = fields.encode() if isinstance(fields, str) else fields
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self.ask("POST", path, body, headers=kind | headers)

    _port: int = 0

    async def make(self, path: str, body: object, *, token: str) -> Any:  # noqa: ANN401
        """Create something and return its record."""
        answer = await self.ask("POST", path, body, token=token)
        assert answer.status_code == 201, (path, answer.text)
        (record,) = answer.json().values()
        return record

    def fresh_token(self, tenant: Tenant | None = None) -> str:
        """Return a token of a tenant's program, by default acme's, for an hour from now."""
        of, now = tenant or self.acme, self.clock()
        return self.tokens.issue(
            iam_crn(of.account_id, "service-account", "program"),
            uuid7(now),
            now + HOUR,
            account_id=of.account_id,
            access_key_id=of.access_key_id,
        )

    async def program_token(self, access_key_id: str, secret: str) -> str:
        """Return the access token of an access key."""
        answer = await self.ask(
            "POST",
            "/v1/oauth/token",
            b"grant_type=client_credentials",
            headers={
                "Authorization": httpx.BasicAuth(access_key_id, secret)._auth_header,
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    async def add_program(self, name: str, *statements: Statement) -> tuple[str, str]:
        """Add a service account of acme that may do this and no more; return its key pair."""
        make, token = self.make, self.acme.program_token
        made = await make("/v1/service-accounts", {"name": name}, token=token)
        policy = {"name": name, "document": document(*statements)}
        policy_id = (await make("/v1/policies", policy, token=token))["id"]
        attached = {"service_account": name}
        await make(f"/v1/policies/{policy_id}/attachments", attached, token=token)
        keys = f"/v1/service-accounts/{made['id']}/access-keys"
        key = await make(keys, {}, token=token)
        return key["access_key_id"], key["secret_access_key"]

    async def token_that_may(self, *statements: Statement, name: str = "limited") -> str:
        """Return the token of a new service account of acme that may do this and no more."""
        return await self.program_token(*await self.add_program(name, *statements))

    async def bearer(self, tenant: Tenant, *scopes: str) -> str:
        """Return a bearer of the data plane for a tenant's program."""
        answer = await self.ask(
            "GET",
            f"/v2/token?{httpx.QueryParams([('scope', scope) for scope in scopes])}",
            headers={"Authorization": httpx.BasicAuth("token", tenant.login)._auth_header},
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    async def add_person(self, name: str) -> tuple[User, str]:
        """Add a person who has signed in; return the person's token too."""
        now = self.clock()
        user = User(
            id=uuid7(),
            email=f"{name}@example.org",
            password=KEPT_PASSWORD,
            must_change_password=False,
            organization_id=uuid7(),
            status="active",
            created_at=now,
            updated_at=now,
        )
        session = Session(
            id=uuid7(), kind="user", created_at=now, expires_at=now + HOUR, user_id=user.id
        )
        await self.database.write(add_person, user)
        await self.database.write(add_session, session)
        crn = iam_crn(user.organization_id, "user", user.id)
        return user, self.tokens.issue(crn, uuid7(), now + HOUR, sid=session.id)

    async def join(
        self, organization_id: str, email: str, token: str, *, by: str, role: str = "member"
    ) -> None:
        """Let a person join an organization, by an owner's invitation."""
        path = f"/v1/organizations/{organization_id}"
        invited = {"email": email, "role": role}
        code = (await self.make(f"{path}/invitations", invited, token=by))["code"]
        joined = await self.ask("POST", f"{path}/accept", {"code": code}, token=token)
        assert joined.status_code == 200, joined.text

    async def add_tenant(self, handle: str) -> Tenant:
        """Add an organization with an account, its owner, and a program that may do everything."""
        person, person_token = await self.add_person(f"owner-of-{handle}")
        key = service_accounts.new_access_key()
        ids = FirstIds(uuid7(), uuid7(), uuid7(), uuid7())
        organization_id, program_id, now = uuid7(), uuid7(), self.clock()
        add_key = await self.kms.maker.prepare_platform_key(ids.account, now)

        def add(tx: Connection) -> None:
            organizations.add_organization(
                tx, Organization(organization_id, handle, False, now, now)
            )
            MEMBERS.add(tx, Membership(organization_id, person.id, "owner", now))
            founder = Founder(iam_crn(person.organization_id, "user", person.id), person.id)
            account = Account(ids.account, organization_id, handle, "active", True, now)
            found_account(tx, account, founder, ids, add_key)
            made = ServiceAccount(program_id, ids.account, "program", "", "active", now, now)
            service_accounts.create_service_account(tx, made)
            ATTACHMENTS.add(tx, Attachment(uuid7(), ids.account, ids.policy, program_id, None, now))
            row = key.row(self.keyring, uuid7(), ids.account, program_id, now)
            service_accounts.create_access_key(tx, row)

        await self.database.write(add)
        token = self.tokens.issue(
            iam_crn(ids.account, "service-account", "program"),
            uuid7(),
            now + HOUR,
            account_id=ids.account,
            access_key_id=key.access_key_id,
        )
        tenant = Tenant(
            handle,
            ids.account,
            organization_id,
            person,
            person_token,
            token,
            key.access_key_id,
            key.secret,
        )
        await furnish(self, tenant)
        return tenant


async def furnish(served: Served, tenant: Tenant) -> None:
    """Make one of each thing in a tenant, and note its id by its place in the table."""
    token, person = tenant.program_token, tenant.person_token
    member, member_token = await served.add_person(f"member-of-{tenant.handle}")
    organization = f"/v1/organizations/{tenant.organization_id}"
    await served.join(tenant.organization_id, member.email, member_token, by=person)
    pending = {"email": f"nobody-of-{tenant.handle}@example.org"}
    invitation = await served.make(f"{organization}/invitations", pending, token=person)
    assert (await served.ask("POST", f"{organization}/switch", token=person)).status_code == 200
    program = await served.make("/v1/service-accounts", {"name": "owner"}, token=token)
    key = await served.make(f"/v1/service-accounts/{program['id']}/access-keys", {}, token=token)
    statement = {"effect": "allow", "actions": ["iam:GetRole"], "resources": ["*"]}
    document = {"version": "1", "statements": [statement]}
    trusted = {"effect": "allow", "principals": [tenant.account_id]}
    trust = {"version": "1", "statements": [trusted]}
    role = await served.make("/v1/roles", {"name": "role", "trust_policy": trust}, token=token)
    await served.make(f"/v1/roles/{role['id']}/assignments", {"user": member.email}, token=token)
    provider = await served.make(
        f"{organization}/identity-providers",
        {"name": "Login", "issuer": "https://login.example.com", "client_id": "entrepot"},
        token=person,
    )
    group = await served.make(
        f"/v1/roles/{role['id']}/group-assignments",
        {"identity_provider": provider["id"], "group": "devs"},
        token=token,
    )
    policy = await served.make(
        "/v1/policies", {"name": "policy", "document": document}, token=token
    )
    attachment = await served.make(
        f"/v1/policies/{policy['id']}/attachments", {"service_account": program["id"]}, token=token
    )
    laptop = await served.make(
        "/v1/users/me/container-passwords", {"name": "laptop", "role": "admin"}, token=person
    )
    tenant.ids = {
        "/v1/organizations/{}": tenant.organization_id,
        "/v1/organizations/{}/members/{}": member.id,
        "/v1/organizations/{}/invitations/{}": invitation["id"],
        "/v1/organizations/{}/identity-providers/{}": provider["id"],
        "/v1/roles/{}/group-assignments/{}": group["id"],
        "/v1/accounts/{}": tenant.account_id,
        "/v1/users/{}": member.id,
        "/v1/users/me/container-passwords/{}": laptop["id"],
        "/v1/service-accounts/{}": program["id"],
        "/v1/service-accounts/{}/access-keys/{}": key["id"],
        "/v1/roles/{}": role["id"],
        "/v1/roles/{}/assignments/{}": member.id,
        "/v1/policies/{}": policy["id"],
        "/v1/policies/{}/attachments/{}": attachment["id"],
    }
    kept = await served.make("/v1/keys", {"name": "key"}, token=token)
    tenant.ids |= {"/v1/keys/{}": kept["id"], "/v1/key-usage/{}": kept["id"]}
    for number in (0, described.NEW):
        await _furnish_uplink(served, tenant, f"vpc-with-uplink-{number}")
    for path, sample in described.samples().items():
        tenant.ids[f"{path}/{{}}"] = (await served.make(path, sample, token=token))["id"]
    await _furnish_interface(served, tenant)
    asked = {"name": "held", "domains": [f"{tenant.handle}.granted.test"]}
    issuing = await served.ask("POST", "/v1/certificates", asked, token=token)
    tenant.ids |= {
        "/v1/certificates/{}": issuing.json()["certificate"]["id"],
    }
    await _furnish_balancer(served, tenant)
    await _furnish_pool(served, tenant)
    await _furnish_billing(served, tenant)
    await _furnish_mail(served, tenant)
    await _furnish_bucket(served, tenant)
    await _furnish_cluster(served, tenant)
    await _furnish_registry(served, tenant)


async def _furnish_uplink(served: Served, tenant: Tenant, name: str) -> None:
    """Add a VPC with an internet gateway, both of this name."""
    named, token = {"name": name}, tenant.program_token
    await served.make("/v1/vpcs", {**named, "cidr_ipv4": "10.0.0.0/16"}, token=token)
    gateway = await served.make("/v1/internet-gateways", named, token=token)
    path = f"/v1/internet-gateways/{gateway['id']}/attach"
    attached = await served.ask("POST", path, {"vpc": name}, token=token)
    assert attached.status_code == 200, attached.text


async def _furnish_interface(served: Served, tenant: Tenant) -> None:
    """Let something have an address of the sample of a subnet."""
    subnet, now = tenant.ids["/v1/subnets/{}"], served.clock()
    owner = f"crn:compute:local:{tenant.account_id}:instance/1"
    place = Interfaces().place
    made = await served.database.write(place, tenant.account_id, "local", subnet, (), owner, now)
    tenant.ids["/v1/network-interfaces/{}"] = made.id


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


async def _furnish_cluster(served: Served, tenant: Tenant) -> None:
    """Add a cluster, with the row of a backup; nothing runs."""
    asked = {**CLUSTER, "bucket": tenant.ids["/v1/buckets/{}"]}
    made = await served.ask("POST", "/v1/clusters", asked, token=tenant.program_token)
    assert made.status_code == 202, made.text
    found = await served.database.read(
        CLUSTERS.find, tenant.account_id, made.json()["cluster"]["id"]
    )
    assert found is not None
    running = structs.replace(
        found,
        status="active",
        version=15,
        has_data=True,
        applied=1,
        # Which programs another machine has, nobody asks this one.
        node=_FAR.name,
        port=20_000 if tenant.handle == "acme" else 20_001,
    )
    await served.database.write(node_rows.claim, _FAR, "far", 0)
    await served.database.write(CLUSTERS.save, running)
    tenant.ids["/v1/clusters/{}"] = found.id
    tenant.ids["/v1/clusters/{}/backups/{}"] = (await add_backup(served, tenant)).id


async def add_backup(served: Served, tenant: Tenant) -> Backup:
    """Add the row of a base backup that has succeeded."""
    now = served.clock()
    new = Backup(
        id=uuid7(now),
        account_id=tenant.account_id,
        region="local",
        created_at=now,
        updated_at=now,
        cluster=Reference(tenant.ids["/v1/clusters/{}"], "held"),
        node=_FAR.name,
        kind="base",
        status="succeeded",
        label=f"of {tenant.handle}",
        completed_at=now,
    )
    return await served.database.write(BACKUPS.add, new)


async def _furnish_balancer(served: Served, tenant: Tenant) -> None:
    made = await served.ask("POST", "/v1/load-balancers", BALANCER, token=tenant.program_token)
    assert made.status_code == 202, made.text
    tenant.ids["/v1/load-balancers/{}"] = made.json()["load_balancer"]["id"]


async def _furnish_pool(served: Served, tenant: Tenant) -> None:
    """Add an instance pool, with the row of an instance; nothing runs."""
    asked = {"name": "instance-pool-0", "image": "web:1"}
    made = await served.ask("POST", "/v1/instance-pools", asked, token=tenant.program_token)
    assert made.status_code == 202, made.text
    pool_id, now = made.json()["instance_pool"]["id"], served.clock()
    new = Instance(
        id=uuid7(now),
        account_id=tenant.account_id,
        region="local",
        created_at=now,
        updated_at=now,
        pool=Reference(pool_id, "instance-pool-0"),
        node=NodeSettings().name,
        image="web:1",
        image_digest=f"sha256:{'0' * 64}",
        version=Version(f"sha256:{'0' * 64}", [], {}, 256, 250),
        memory_mb=256,
        cpu_millis=250,
    )
    await served.database.write(INSTANCE_ROWS.add, new)
    tenant.ids |= {
        "/v1/instance-pools/{}": pool_id,
        "/v1/instance-pools/{}/instances/{}": new.id,
    }


async def _furnish_billing(served: Served, tenant: Tenant) -> None:
    """Add two payment methods, of which the first is the default, and an invoice."""
    card = "tok_visa" if served.billing.processor.name == "embedded" else "pm_card_visa"
    body, token = {"type": "card", "token": card}, tenant.program_token
    method = [await served.make("/v1/payment-methods", body, token=token) for _ in range(2)][1]
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
    tenant.ids |= {"/v1/payment-methods/{}": method["id"], "/v1/invoices/{}": invoice.id}


async def _furnish_mail(served: Served, tenant: Tenant) -> None:
    """Make the sample of a domain a verified one, and have a message accepted that is from it."""
    of = (tenant.account_id, tenant.ids["/v1/identities/{}"])

    def verify(tx: Connection) -> SendingIdentity:
        found = IDENTITIES.lock(tx, *of)
        return IDENTITIES.save(
            tx, structs.replace(found, status="verified", verified_at=found.created_at)
        )

    identity = await served.database.write(verify)
    if served.email.sending.sender is None:
        return
    body = {**MESSAGE, "from": f"ada@{identity.value}"}
    sent = await served.ask("POST", "/v1/messages", body, token=tenant.program_token)
    assert sent.status_code == 202, sent.text
    tenant.ids["/v1/messages/{}"] = sent.json()["message"]["id"]
    if served.email.dedicated_ips:
        address = await served.make("/v1/dedicated-ips", {}, token=tenant.program_token)
        tenant.ids["/v1/dedicated-ips/{}"] = address["id"]


async def _furnish_bucket(served: Served, tenant: Tenant) -> None:
    token, name = tenant.program_token, f"bucket-of-{tenant.handle}"
    path, key = f"/v1/buckets/{name}", f"key-of-{tenant.handle}"
    await served.make("/v1/buckets", {"name": name}, token=token)
    rules = [{"allowed_origins": ["*"], "allowed_methods": ["GET"]}]
    done = [
        await served.ask("PUT", f"{path}/cors", {"cors_rules": rules}, token=token),
        await served.ask("PUT", f"{path}/objects/{key}", b"bytes", token=token),
    ]
    uploads = f"{path}/multipart-uploads"
    upload = await served.make(uploads, {"key": key}, token=token)
    part = f"{uploads}/{upload['upload_id']}/parts/1"
    done.append(await served.ask("PUT", part, b"part", token=token))
    assert [each.status_code for each in done] == [200] * 3, [each.text for each in done]
    tenant.ids |= {
        "/v1/buckets/{}": name,
        "/v1/buckets/{}/objects/{}": key,
        "/v1/buckets/{}/multipart-uploads/{}": upload["upload_id"],
        "/v1/buckets/{}/multipart-uploads/{}/parts/{}": "1",
    }


async def _furnish_registry(served: Served, tenant: Tenant) -> None:
    token, name = tenant.program_token, f"{tenant.handle}/app"
    made = await served.make("/v1/repositories", {"name": "app"}, token=token)
    document = {"version": "1", "statements": [_allow_pull(tenant.account_id)]}
    path = f"/v1/repositories/{made['id']}/policy"
    assert (await served.ask("PUT", path, document, token=token)).status_code == 200
    minted = await served.ask("POST", "/v1/authorization-token", token=token)
    tenant.login = _password(minted.json())
    bearer = await served.bearer(tenant, f"repository:{name}:*")
    blob = f"layer of {tenant.handle}".encode()
    tenant.blob = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    uploads = f"/v2/{name}/blobs/uploads/"
    pushed = await served.ask("POST", f"{uploads}?digest={tenant.blob}", blob, token=bearer)
    assert pushed.status_code == 201, pushed.text
    descriptor = {"mediaType": "application/x", "digest": tenant.blob, "size": len(blob)}
    manifest = {"schemaVersion": 2, "config": descriptor, "layers": [descriptor]}
    body = json.dumps(manifest | {"mediaType": OCI_MANIFEST}).encode()
    tenant.digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    tagged = f"of-{tenant.handle}"
    kind = {"Content-Type": OCI_MANIFEST}
    put = await served.ask(
        "PUT", f"/v2/{name}/manifests/{tagged}", body, token=bearer, headers=kind
    )
    assert put.status_code == 201, put.text
    pin = f"/v1/repositories/{made['id']}/images/{tenant.digest}/pins/{tagged}"
    assert (await served.ask("PUT", pin, {}, token=token)).status_code == 201
    topic = await served.make("/v1/topics", {"name": "images"}, token=token)
    hook = {"protocol": "https", "endpoint": "https://192.0.32.7/hook"}
    subscribed = await served.ask(
        "POST", f"/v1/topics/{topic['id']}/subscriptions", hook, token=token
    )
    subscription = subscribed.json()["subscription"]
    asked = {"topic": topic["crn"], "event_types": ["registry.*"]}
    rule = await served.make("/v1/event-rules", asked, token=token)
    mirror = {"prefix": "mirror", "upstream_url": "https://registry.example.com"}
    cache = await served.make("/v1/pull-through-cache-rules", mirror, token=token)
    lifecycle = f"/v1/repositories/{made['id']}/lifecycle-policy"
    rules = [{"priority": 1, "selector": "untagged", "older_than_days": 1}]
    assert (await served.ask("PUT", lifecycle, {"rules": rules}, token=token)).status_code == 200
    for bound in ("/v1", f"/v1/repositories/{made['id']}"):
        key, path = {"kms_key": "platform"}, f"{bound}/encryption-binding"
        answer = await served.ask("PUT", path, key, token=token)
        assert answer.status_code == 200 or "sealing_disabled" in answer.text
    run = (await served.ask("POST", f"{lifecycle}/runs", token=token)).json()["run"]
    collection = "/v1/garbage-collection/runs"
    collected = (await served.ask("POST", collection, token=token)).json()["run"]
    rewrap = f"/v1/repositories/{made['id']}/encryption-binding/rewrap"
    rewrapped = (await served.ask("POST", rewrap, token=token)).json()["run"]
    opened = await served.ask("POST", uploads, token=bearer)
    tenant.upload_id = opened.headers["location"].rpartition("/")[2]
    tenant.ids |= {
        "/v1/repositories/{}": made["id"],
        "/v1/repositories/{}/images/{}": tenant.digest,
        "/v1/repositories/{}/tags/{}": tagged,
        "/v1/repositories/{}/images/{}/pins/{}": tagged,
        "/v1/repositories/{}/lifecycle-policy/runs/{}": run["id"],
        "/v1/repositories/{}/encryption-binding/rewrap/runs/{}": rewrapped["id"],
        "/v1/event-rules/{}": rule["id"],
        "/v1/topics/{}": topic["id"],
        "/v1/topics/{}/subscriptions/{}": subscription["id"],
        "/v1/pull-through-cache-rules/{}": cache["id"],
        "/v1/garbage-collection/runs/{}": collected["id"],
    }
    recorded = (await served.ask("GET", "/v1/audit-events?limit=1", token=token)).json()
    tenant.ids["/v1/audit-events/{}"] = recorded["events"][0]["id"]


def _allow_pull(account_id: str) -> dict[str, Any]:
    return {
        "effect": "allow",
        "principals": [account_id],
        "actions": ["registry:PullImage"],
    }


def _password(answer: dict[str, Any]) -> str:
    """Return the password of a minted login, wherever the record has it."""
    for value in answer.values():
        if isinstance(value, str) and value.startswith("rlc_"):
            return value
        if isinstance(value, dict):
            return _password(value)
    raise AssertionError(answer)


@asynccontextmanager
async def open_served(
    data: Path, database_url: str = "", *, clock: ManualClock | None = None, **changes: object
) -> AsyncIterator[Served]:
    """Open a served install in a folder, with both tenants in it; `changes` are of its settings."""
    settings = Settings(
        data=data,
        database_url=database_url,
        public_url=URL,
        founders="anyone",
        operators="acme",
        certificate_grants="granted.test=*",
        email=EmailSettings(email_sending="direct"),
        # Nothing is run: no process watches this machine, and no driver was checked.
        node=NodeSettings(
            balancer_vips="192.0.2.0/24", compute_driver="runc", database_driver="bubblewrap"
        ),
    )
    settings = replace(settings, **cast("dict[str, Any]", changes))
    if not settings.email.email_dedicated_ips:
        listed = replace(settings.email, email_dedicated_ips=_ADDRESSES)
        settings = replace(settings, email=listed)
    clock = clock or ManualClock()
    tenants = await lay(settings, clock)
    async with _opened(settings, clock) as served:
        served.acme, served.globex = tenants
        yield served


@asynccontextmanager
async def _opened(settings: Settings, clock: ManualClock) -> AsyncIterator[Served]:
    """Open a served install as it is, with the tenants that it has or none."""
    async with AsyncExitStack() as resources:
        database = NotingDatabase(open_database(settings.database))
        resources.push_async_callback(database.close)
        registry = Registry(
            settings, SERVE, database=database, clock=clock, new_id=lambda: uuid7(clock())
        )
        opening, planes = await resources.enter_async_context(registry.open_planes())
        auditor = cast("AuditLog", await opening.get(AUDITOR))
        keyring = load_keyring(settings.root_key)
        keys = SigningKeys(database, keyring, clock, KEY_KINDS)
        await keys.refresh()
        app = dispatcher(planes.data, planes.control, planes.objects, planes=planes_of(settings))
        control = cast("ControlPlane", planes.control)
        specs = [route.spec for route in control.routes]
        tokens = AccessTokens(keys, URL, clock)
        needs = (
            await opening.needs_of(KMS),
            await opening.needs_of(NOTIFICATIONS),
            await opening.needs_of(CERTIFICATE),
            await opening.needs_of(BILLING),
            await opening.needs_of(EMAIL),
            await opening.get(LAST_USES),
            await opening.get(METER),
        )
        yield Served(app, database, keyring, tokens, clock, specs, auditor, *needs)
    for store in (settings.blobs, settings.buckets):
        _remove_empty_shards(store / "objects")


def _remove_empty_shards(objects: Path) -> None:
    """Spare who copies or removes the folder of an install a look into 256 folders of a store."""
    if not objects.is_dir():  # its objects are in a bucket
        return
    folder = os.open(objects, os.O_RDONLY)
    try:
        for name in SHARDS:
            with suppress(OSError):  # it has objects
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)


_PLACES: Final = frozenset(
    {
        "data",
        "database_url",
        "dns_resolver",
        "oidc_internal_origins",
        "smtp_url",
        "webhook_allowed",
    }
)
"""Settings that only say where something is that a test runs: the tenants are alike."""


async def lay(settings: Settings, clock: ManualClock) -> tuple[Tenant, Tenant]:
    """Lay a copy of an install with both tenants where `settings` say, and return the tenants.

    To furnish them takes half a second. It is done once for each kind of install.
    """
    url = settings.database_url
    said = {each.name: getattr(settings, each.name) for each in fields(settings)}
    said["email"] = replace(settings.email, email_port=25)
    alike = {name: value for name, value in said.items() if name not in _PLACES}
    key = repr((alike, url.rpartition("/")[0] if is_postgresql(url) else "", clock.now))
    if key not in _FURNISHED:
        _FURNISHED[key] = await _furnish_install(settings, clock)
    furnished = _FURNISHED[key]
    shutil.copytree(furnished.data, settings.data, dirs_exist_ok=True)
    if is_postgresql(url):
        assert furnished.rows is not None
        assert put_back(url, furnished.rows)
    elif url:
        (settings.data / "metadata.db").rename(url.removeprefix("sqlite:///"))
    clock.now = furnished.now
    acme, globex = (replace(tenant, ids=dict(tenant.ids)) for tenant in furnished.tenants)
    return acme, globex


class _Furnished(NamedTuple):
    """An install with both tenants, that nobody has open."""

    data: Path
    rows: Rows | None
    """Of its database, if it is of PostgreSQL; else it is in the folder."""
    now: int
    tenants: tuple[Tenant, Tenant]


_FURNISHED: Final[dict[str, _Furnished]] = {}
"""Those of this process."""


async def _furnish_install(settings: Settings, clock: ManualClock) -> _Furnished:
    """Make an install that is as `settings` say, but in a place of its own."""
    url = settings.database_url
    data = planted(Path(mkdtemp(prefix="entrepot-furnished-")) / "data")
    atexit.register(shutil.rmtree, data.parent)
    if is_postgresql(url):
        (data / "metadata.db").unlink()
    settings = replace(settings, data=data, database_url=url if is_postgresql(url) else "")
    prepare(settings)
    create_root_key(settings.root_key)
    clock = ManualClock(clock.now)
    async with _opened(settings, clock) as served:
        # This machine was seen last in a thousand days, so no clock makes it a lost one.
        seen_at = clock() + 24_000 * HOUR
        name = settings.node.node(data)
        await served.database.write(node_rows.claim, name, uuid7(), seen_at)
        tenants = (await served.add_tenant("acme"), await served.add_tenant("globex"))
    rows = rows_of(url) if is_postgresql(url) else None
    return _Furnished(data, rows, clock.now, tenants)


async def routes_of_the_whole(settings: Settings) -> ControlPlane:
    """Return the control plane that ``entrepot serve`` opens."""
    async with Registry(settings, SERVE).open_planes() as (_, planes):
        return cast("ControlPlane", planes.control)
