"""Something of every kind, for requests to be about; a new kind of thing needs a line here."""

from __future__ import annotations

import re
from typing import Any, Final

import httpx

from cloudcore.clock import system_clock, uuid7
from registry.settings.node import NodeSettings
from tests import described
from tests.certificates import uploaded
from tests.conformance.content import EMPTY, image_manifest, subject_of
from tests.fuzz.install import HANDLE, OUTSIDER, FuzzedInstall
from tests.fuzz.known import Known
from tests.owed_invoices import OCTOBER, owe
from tests.tenants import ALLOW_ALL, basic, bearer, document, let

_SIGN_IN: Final = {
    "response_type": "code",
    "client_id": "cli",
    "redirect_uri": "urn:ietf:wg:oauth:2.0:oob",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
}
"""An authorization request; the challenge is that of RFC 7636, appendix B."""
_VERIFIER: Final = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_HIDDEN: Final = re.compile(r'name="form" value="([^"]*)"')


_BALANCER: Final[dict[str, Any]] = {
    "subnet": "subnet-0",
    "listeners": [
        {"port": 443, "protocol": "https", "backend": "web", "certificate": "up0"},
        {"port": 5432, "protocol": "tcp", "backend": "db"},
    ],
    "backends": [
        {
            "name": "web",
            "protocol": "http",
            "health_check": {"protocol": "http", "path": "/healthz"},
            "targets": [{"address": "10.0.0.9", "port": 8080}],
        },
        {"name": "db", "protocol": "tcp"},
    ],
}


_VERSION: Final = (
    '{"image_digest": "", "command": [], "environment": {}, "memory_mb": 256, "cpu_millis": 250}'
)


def plant(install: FuzzedInstall) -> None:
    """Make something of every kind, and keep that state."""
    _plant_identity(install)
    for key in ("app", "backups"):
        _make(install, "/v1/keys", {"name": key})
    now = system_clock()
    for number in range(2):
        body = {"name": f"up{number}", **uploaded("up.example.com", now)}
        _make(install, "/v1/certificates/upload", body)
    dead = _make(install, "/v1/queues", {"name": "dead"})
    redrive = {"dead_letter_queue": "dead", "max_leases": 2}
    queue = _make(install, "/v1/queues", {"name": "jobs", "redrive_policy": redrive})
    messages = {"messages": [{"body": "a"}, {"body": "b"}]}
    for each in (dead, queue):  # of an empty one, a request to lease waits for up to 20 s
        path = f"/v1/queues/{each}/messages"
        _ask(install, "POST", path, bearer(install.bearers["admin"]), json=messages)
    _plant_network(install)
    for path, sample in described.samples().items():
        _make(install, path, sample)
    for number in range(2):
        _make(install, "/v1/load-balancers", {**_BALANCER, "name": f"front-{number}"})
    _plant_pools(install)
    _plant_clusters(install)
    _plant_mail(install)
    for _ in range(2):
        _make(install, "/v1/payment-methods", {"type": "card", "token": "tok_visa"})
    for month in range(3):
        owe(install.live, OCTOBER - month * 31 * 86_400_000_000)
    _plant_bucket(install)
    _plant_repository(install)
    install.keep()


def _plant_network(install: FuzzedInstall) -> None:
    """Have a machine that makes networks, and VPCs with an uplink on it."""
    machine = (
        NodeSettings().name,
        "1",
        '["networks", "instances", "databases", "backups"]',
        system_clock() * 2,
        False,
        True,
    )
    columns = "name, identity, capabilities, seen_at, is_lost, is_noted"
    install.live.execute(f"INSERT INTO nodes ({columns}) VALUES (?, ?, ?, ?, ?, ?)", machine)
    install.live.commit()
    for number in range(2):
        named = {"name": f"vpc-with-uplink-{number}"}
        _make(install, "/v1/vpcs", {**named, "cidr_ipv4": "10.0.0.0/16"})
        gateway = _make(install, "/v1/internet-gateways", named)
        path = f"/v1/internet-gateways/{gateway}/attach"
        _ask(install, "POST", path, bearer(install.bearers["admin"]), json={"vpc": named["name"]})


def _plant_pools(install: FuzzedInstall) -> None:
    """Make pools, and rows of instances of theirs; nothing runs."""
    for number in range(2):
        named = {"name": f"pool-{number}", "image": "web:1", "subnet": "subnet-0"}
        pool = _make(install, "/v1/instance-pools", named)
        row = (uuid7(), "web:1", f"sha256:{'0' * 64}", _VERSION, pool)
        install.live.execute(
            "INSERT INTO instances (id, account_id, region, pool_id, node, status, image,"
            " image_digest, restarts, version, memory_mb, cpu_millis, ports, exits, created_at,"
            " updated_at) SELECT ?, account_id, region, id, node, 'running', ?, ?, 0, ?, 256, 250,"
            " '[]', '[]', created_at, updated_at FROM instance_pools WHERE id = ?",
            row,
        )
        install.live.commit()


def _plant_clusters(install: FuzzedInstall) -> None:
    """Make clusters, and rows of backups of theirs; nothing runs."""
    for number in range(2):
        named = {"name": f"cluster-{number}", "size": {"memory_mb": 128}}
        made = _make(install, "/v1/clusters", named)
        install.live.execute(
            "INSERT INTO database_backups (id, account_id, region, cluster_id, node, kind, trigger,"
            " status, faults, progress, verification, label, created_at, updated_at)"
            " SELECT ?, account_id, region, id, node, 'base', 'manual', 'succeeded', '[]', 100,"
            " 'never', 'label', created_at, updated_at FROM database_clusters WHERE id = ?",
            (uuid7(), made),
        )
        install.live.commit()


def _plant_mail(install: FuzzedInstall) -> None:
    """Verify the sample of a domain, as the DNS would, and have messages accepted."""
    install.live.execute("UPDATE email_identities SET status = 'verified', verified_at = 0")
    install.live.commit()
    admin = bearer(install.bearers["admin"])
    message = {"to": ["bob@example.com"], "subject": "Hello", "text": "Hello."}
    for _ in range(2):
        _make(install, "/v1/dedicated-ips", {})
    for sender in ("ada", "eve"):
        body = {**message, "from": f"{sender}@mail-0.example.com"}
        _ask(install, "POST", "/v1/messages", admin, json=body)


def _plant_bucket(install: FuzzedInstall) -> None:
    """Make a bucket with objects, CORS rules and an upload that has a part."""
    admin = bearer(install.bearers["admin"])
    _make(install, "/v1/buckets", {"name": "photos"})
    for key in ("cat.jpg", "2026%2Fdog.jpg"):
        _ask(install, "PUT", f"/v1/buckets/photos/objects/{key}", admin, content=b"bytes")
    rule = {"allowed_origins": ["https://app.example.com"], "allowed_methods": ["GET"]}
    _ask(install, "PUT", "/v1/buckets/photos/cors", admin, json={"cors_rules": [rule]})
    uploads = "/v1/buckets/photos/multipart-uploads"
    upload = _ask(install, "POST", uploads, admin, json={"key": "film.mp4"}).json()["upload"]
    part = f"{uploads}/{upload['upload_id']}/parts/1"
    _ask(install, "PUT", part, admin, content=b"part")


def _plant_identity(install: FuzzedInstall) -> None:
    for name in ("ci", "cd"):
        program = _make(install, "/v1/service-accounts", {"name": name})
        _make(install, f"/v1/service-accounts/{program}/access-keys")
        policy = {"name": f"of-{name}", "document": document(ALLOW_ALL)}
        path = f"/v1/policies/{_make(install, '/v1/policies', policy)}/attachments"
        _make(install, path, {"service_account": name})
    _make(install, "/v1/policies", {"name": "unused", "document": document(ALLOW_ALL)})
    person = bearer(install.bearers["person"])
    for organization in _ask(install, "GET", "/v1/organizations", person).json()["organizations"]:
        if not organization["is_personal"]:
            _ask(install, "POST", f"/v1/organizations/{organization['id']}/switch", person)
            invited = {"email": "invited@example.org"}
            path = f"/v1/organizations/{organization['id']}/invitations"
            _make(install, path, invited, caller="person")
            provider = _plant_provider(install, f"/v1/organizations/{organization['id']}")
    user = _make(install, "/v1/users", {"email": "member@example.org"}, caller="person")
    trust = document({"effect": "allow", "principals": [install.first.account_id]})
    role = _make(install, "/v1/roles", {"name": "deploy", "trust_policy": trust})
    _make(install, f"/v1/roles/{role}/assignments", {"user": user})
    group = {"identity_provider": provider, "group": "devs"}
    _make(install, f"/v1/roles/{role}/group-assignments", group)
    _make(install, "/v1/accounts", {"handle": "second"})
    named = {"name": "laptop", "role": "admin"}
    _make(install, "/v1/users/me/container-passwords", named, caller="person")
    _make(install, "/v1/organizations", {"name": "Side project"}, caller="person")


def _plant_provider(install: FuzzedInstall, organization: str) -> str:
    """Make an identity provider that is never asked; return its id."""
    path = f"{organization}/identity-providers"
    about = {"name": "Login", "issuer": "https://login.example.com", "client_id": "entrepot"}
    provider = _make(install, path, about, caller="person")
    person = bearer(install.bearers["person"])
    _ask(install, "PATCH", f"{path}/{provider}", person, json={"status": "inactive"})
    return provider


def _plant_repository(install: FuzzedInstall) -> None:
    for name in ("app", "team/app"):
        repository = _make(install, "/v1/repositories", {"name": name})
    path = f"/v1/repositories/{repository}/policy"
    _ask(install, "PUT", path, bearer(install.bearers["admin"]), json=document(let("*")))
    login = _ask(install, "POST", "/v1/authorization-token", bearer(install.bearers["admin"]))
    place = f"/v2/{HANDLE}/{name}"
    scope = f"/v2/token?scope=repository:{HANDLE}/{name}:pull,push"
    signed = bearer(_ask(install, "GET", scope, basic(login.json()["password"])).json()["token"])
    upload = f"{place}/blobs/uploads/?digest={EMPTY.digest}"
    _ask(install, "POST", upload, signed, content=EMPTY.body)
    image = image_manifest(EMPTY, [EMPTY])
    signature = image_manifest(EMPTY, [EMPTY], **subject_of(image), artifactType="text/plain")
    for content, reference in ((image, "latest"), (image, "v1"), (signature, signature.digest)):
        headers = {**signed, "Content-Type": _MANIFEST}
        url = f"{place}/manifests/{reference}"
        _ask(install, "PUT", url, headers, content=content.body)
    pin = f"/v1/repositories/{repository}/images/{image.digest}/pins/production"
    _ask(install, "PUT", pin, bearer(install.bearers["admin"]), json={})
    for bound in ("/v1", f"/v1/repositories/{repository}"):
        path = f"{bound}/encryption-binding"
        _ask(install, "PUT", path, bearer(install.bearers["admin"]), json={"kms_key": "backups"})
    lifecycle = f"/v1/repositories/{repository}/lifecycle-policy"
    rules = [{"priority": 1, "selector": "untagged", "older_than_days": 1}]
    _ask(install, "PUT", lifecycle, bearer(install.bearers["admin"]), json={"rules": rules})
    _make(install, f"{lifecycle}/runs")
    _make(install, f"/v1/repositories/{repository}/encryption-binding/rewrap")
    _make(install, "/v1/garbage-collection/runs")
    topic = f"crn:notifications:local:{install.first.account_id}:topic/pushes"
    made = _make(install, "/v1/topics", {"name": "pushes"})
    hook = {"protocol": "https", "endpoint": "https://192.0.32.7/hook"}
    _make(install, f"/v1/topics/{made}/subscriptions", hook)
    _make(install, "/v1/event-rules", {"topic": topic, "event_types": ["registry.image.pushed"]})
    mirror = {"prefix": "mirror", "upstream_url": "https://registry.example.com"}
    _make(install, "/v1/pull-through-cache-rules", mirror)


def unlisted(install: FuzzedInstall) -> dict[str, list[str]]:
    """Return values of parameters of paths that no operation lists."""
    authorities = install.live.execute("SELECT id FROM certificate_authorities").fetchall()
    return {"authority_id": [row[0] for row in authorities]}


def teach(install: FuzzedInstall, known: Known) -> None:
    """Say what fields hold that no list tells: secrets, and words of protocols."""
    page = _ask(install, "GET", f"/v1/oauth/authorize?{httpx.QueryParams(_SIGN_IN)}", {})
    install.cookie = page.headers["set-cookie"].partition(";")[0]
    account = install.first.account_id
    words: dict[str, list[Any]] = {
        "code_challenge": [_SIGN_IN["code_challenge"]],
        "grant_type": ["client_credentials"],
        "client_id": [install.first.access_key_id],
        "client_secret": [install.first.secret_access_key],
        "code_verifier": [_VERIFIER],
        "token": [*install.bearers.values(), install.first.secret_access_key],
        "issuer": ["https://login.example.com"],
        "email_domains": [["example.com"]],
        "key_spec": ["aes-256", "hmac-256", "ecdsa-p256"],
        "kms_key": ["app", "backups", "platform", f"crn:kms:local:{account}:key/app"],
        "plaintext": ["c2VjcmV0"],
        "form": [match[1] for match in _HIDDEN.finditer(page.text)],
        "email": [install.first.email, OUTSIDER, "new@example.org"],
        "password": [install.first.one_time_password, "a long enough password"],
        "current_password": [install.first.one_time_password],
        "document": [document(ALLOW_ALL), document(let("*"))],
        "policy": [document(let("*"))],
        "principal": ["*", f"crn:iam::{account}:service-account/ci"],
        "resource": [f"crn:registry:local:{account}:repository/team/app"],
        "actions": [["registry:PullImage"], ["registry:PullImage", "iam:AssumeRole"]],
        "names": [["web/*"], ["*"]],
        "listeners": [_BALANCER["listeners"], _BALANCER["listeners"][1:]],
        "backends": [_BALANCER["backends"]],
    }
    for field, values in words.items():
        known.add(field, *values)


def _make(install: FuzzedInstall, path: str, body: object = None, caller: str = "admin") -> str:
    """Create something; return its id."""
    answer = _ask(install, "POST", path, bearer(install.bearers[caller]), json=body)
    record = next(iter(answer.json().values()))
    return str(record.get("id", ""))


def _ask(
    install: FuzzedInstall,
    method: str,
    path: str,
    headers: dict[str, str],
    **body: Any,  # noqa: ANN401 - httpx's
) -> httpx.Response:
    answer = install.send(httpx.Request(method, install.url + path, headers=headers, **body))
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer
