"""All of ``entrepot serve`` in this process, with two tenants who have one of each thing.

Both planes are made by the composition root itself, so an operation added later is here by itself.
What is asked goes over ASGI; every statement that runs is noted with its parameters.
"""

from __future__ import annotations

import atexit
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

from cloudcore.audit.log import AuditLog
from cloudcore.billing.family import BILLING
from cloudcore.billing.needs import BillingNeeds
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.db.opening import is_postgresql, open_database
from cloudcore.email.family import EMAIL
from cloudcore.email.needs import EmailNeeds
from cloudcore.iam.audit import AUDITOR
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.names import iam_crn
from cloudcore.identity.needs import LAST_USES
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.rows.organizations import MEMBERS, ORGANIZATIONS, Membership, Organization
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment
from cloudcore.identity.rows.service_accounts import ServiceAccount
from cloudcore.identity.rows.sessions import Session, add_session
from cloudcore.identity.rows.users import User
from cloudcore.identity.services import service_accounts
from cloudcore.identity.services.accounts import Founder, open_account
from cloudcore.identity.services.users import add_person
from cloudcore.identity.tokens.access_tokens import AccessTokens
from cloudcore.identity.tokens.signing_keys import SigningKeys
from cloudcore.keyring import Keyring, create_root_key, load_keyring
from cloudcore.kms.family import KMS
from cloudcore.kms.needs import KmsNeeds
from cloudcore.metering.needs import METER, Meter
from cloudcore.nodes import rows as node_rows
from cloudcore.notifications.family import NOTIFICATIONS
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.serving.dispatch import Application
from cloudcore.web.app import ControlPlane
from cloudcore.web.route_spec import RouteSpec
from registry.blobstore.disk.folders import SHARDS
from registry.composition.main import Registry, prepare
from registry.composition.planes import dispatcher, planes_of
from registry.composition.serve import SERVE
from registry.services.access.bearers import KEY_KINDS
from registry.settings.email import EmailSettings
from registry.settings.node import NodeSettings
from registry.settings.settings import Settings
from tests.databases import planted
from tests.inprocess import ManualClock
from tests.integration import served_things
from tests.integration.noting_database import NotingDatabase
from tests.passwords import KEPT_PASSWORD
from tests.postgresql_rows import Rows, put_back, rows_of
from tests.tenants import Statement, document

HOST: Final = "registry.test"
URL: Final = f"http://{HOST}"
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

    def path(self, place: str) -> str:
        """Return the path of a place in the table of operations, with the ids of this tenant."""
        path, *rest = place.split("/{}")
        above = path
        for part in rest:
            above += "/{}"
            path += f"/{self.ids[above]}{part}"
            above += part
        return path


_ADDRESSES: Final = ",".join(f"198.51.100.{number}" for number in range(32))
"""What the tenants may get to send from."""


_CLIENT_HEADERS: Final = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
    "User-Agent": f"python-httpx/{httpx.__version__}",
}
"""Headers that a client of httpx sends."""


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
        url = path if path.startswith("http") else f"{URL}/{path.lstrip('/')}"
        # A client of httpx for each request would cost as much as the request.
        sent = httpx.Headers(_CLIENT_HEADERS)
        sent.update(given | (headers or {}))
        request = httpx.Request(method, url, content=body or b"", headers=sent)
        answer = await transport.handle_async_request(request)
        await answer.aread()
        answer.request = request
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
        account_id, organization_id, program_id, now = uuid7(), uuid7(), uuid7(), self.clock()
        _, policy_id, _ = ids = [uuid7() for _ in range(3)]
        add_key = await self.kms.maker.prepare_platform_key(account_id, now)

        def add(tx: Connection) -> None:
            ORGANIZATIONS.add(tx, Organization(organization_id, handle, now, now))
            MEMBERS.add(tx, Membership(organization_id, person.id, "owner", now))
            founder = Founder(iam_crn(person.organization_id, "user", person.id), person.id)
            account = Account(account_id, organization_id, handle, now)
            open_account(tx, account, founder, iter(ids).__next__, add_key)
            made = ServiceAccount(program_id, account_id, "program", "", now, now)
            service_accounts.create_service_account(tx, made)
            ATTACHMENTS.add(tx, Attachment(uuid7(), account_id, policy_id, program_id, None, now))
            row = key.row(self.keyring, uuid7(), account_id, program_id, now)
            service_accounts.create_access_key(tx, row)

        await self.database.write(add)
        token = self.tokens.issue(
            iam_crn(account_id, "service-account", "program"),
            uuid7(),
            now + HOUR,
            account_id=account_id,
            access_key_id=key.access_key_id,
        )
        tenant = Tenant(
            handle,
            account_id,
            organization_id,
            person,
            person_token,
            token,
            key.access_key_id,
            key.secret,
        )
        await served_things.furnish(self, tenant)
        return tenant


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


_DIFFERS_BY_INSTALL: Final = frozenset(
    {
        "data",
        "database_url",
        "dns_resolver",
        "founders",
        "oidc_internal_origins",
        "s3_host",
        "smtp_from",
        "smtp_url",
        "webhook_allowed",
    }
)
"""Settings that differ although the tenants that they lead to are alike."""


async def lay(settings: Settings, clock: ManualClock) -> tuple[Tenant, Tenant]:
    """Lay a copy of an install with both tenants where `settings` say, and return the tenants.

    To furnish them takes half a second. It is done once for each kind of install.
    """
    url = settings.database_url
    said = {each.name: getattr(settings, each.name) for each in fields(settings)}
    said["email"] = replace(settings.email, email_port=25)
    alike = {name: value for name, value in said.items() if name not in _DIFFERS_BY_INSTALL}
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
