"""A request that names another resource: its right is asked before it matters if there is one.

`NAMING` has every field of a body that names a resource with a right of its own; the first test
fails for a field that stands neither there nor in ``names_nothing.txt``.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests import described as resources
from tests.certificates import uploaded
from tests.integration.served_world import Served, Tenant, open_served
from tests.spec.operations import OPERATIONS, Operation
from tests.tenants import Statement, allow, deny

UNKNOWN: Final = "01890000-0000-7000-8000-0000000000ff"
UUIDS: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TRUST: Final = {"version": "1", "statements": [{"effect": "allow", "principals": ["<account>"]}]}
KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "ip-pool": ("email:GetIPPool", {}),
    "key": ("kms:UseKey", {}),
    "template": ("email:GetTemplate", {"subject": "Hello", "text": "Hello."}),
    "queue": ("queue:SendMessage", {}),
    "certificate": ("certificate:GetCertificate", {}),
    "security-group": ("network:GetSecurityGroup", {"vpc": "vpc-0"}),
    "subnet": ("network:GetSubnet", {"vpc": "vpc-0", "cidr_ipv4": "10.0.200.0/24"}),
    "route-table": ("network:GetRouteTable", {"vpc": "vpc-0"}),
    "topic": ("notifications:Publish", {}),
    "vpc": ("network:GetVpc", {"cidr_ipv4": "10.200.0.0/16"}),
    "service-account": ("iam:AttachPolicy", {}),
    "role": ("iam:AttachPolicy", {"trust_policy": _TRUST}),
}
"""The right that naming one needs, and the request that makes one, without its name."""
IT: Final = "<it>"
"""In the body of a request, what it names."""
ANEW: Final = "<anew>"
"""In the body of a request, a word that no other has, as they share an install."""


class Naming(NamedTuple):
    """A field of a request that names a resource."""

    operation: str
    field: str
    kind: str
    """Of `KINDS`."""
    needed: str = ""
    """The action of the operation itself, if it is another one."""
    more: Mapping[str, Any] = {}
    """Of the body, besides the field; or with it, if it is below another."""
    right: str = ""
    """The right to what is named, if not that of its kind."""
    on: str = "*"
    """The resource of the operation itself."""
    forms: tuple[str, ...] = ("name", "id", "crn")
    is_across_accounts: bool = False
    """True if it may name what is another account's."""

    @property
    def action(self) -> str:
        return self.right or KINDS[self.kind][0]

    def crn(self, account: str, name: str) -> str:
        """Return the CRN of what is named; both may be patterns."""
        service = KINDS[self.kind][0].partition(":")[0]
        return f"crn:{service}:{'' if service == 'iam' else 'local'}:{account}:{self.kind}/{name}"

    def body(self, value: str) -> dict[str, Any]:
        is_below = "." in self.field or "[]" in self.field
        made = self.more if is_below else {self.field: IT, **self.more}
        filled = json.dumps(made).replace(IT, value).replace(ANEW, f"n{uuid4().hex}")
        return dict(json.loads(filled))


_NEW: Final = {"name": ANEW}
_POOL: Final = ("ip_pool", "ip-pool")
_REDRIVE: Final = ("redrive_policy.dead_letter_queue", "queue")
_REDRIVEN: Final = {"redrive_policy": {"dead_letter_queue": IT}}
_QUEUE: Final = {"redrive_policy": {"dead_letter_queue": IT, "max_leases": 3}}
_SUBSCRIPTIONS: Final = "POST /v1/topics/{topic_id}/subscriptions"
_ATTACHMENTS: Final = "POST /v1/policies/{policy_id}/attachments"
_ATTACH: Final = "iam:AttachPolicy"
_POLICIES: Final = "crn:iam::*:policy/*"
_WEB: Final = {"name": "web", "protocol": "http"}
_HTTP: Final = {"port": 80, "protocol": "http", "backend": "web"}
_HTTPS: Final = {"port": 443, "protocol": "https", "backend": "web", "certificate": IT}
_BALANCER: Final = "PATCH /v1/load-balancers/{load_balancer_id}"
_CHANGED: Final = "loadbalancer:UpdateLoadBalancer"
NAMING: Final = (
    Naming("POST /v1/security-groups", "vpc", "vpc", "network:CreateSecurityGroup", _NEW),
    Naming("POST /v1/route-tables", "vpc", "vpc", "network:CreateRouteTable", _NEW),
    Naming("POST /v1/egress-only-gateways", "vpc", "vpc", "network:CreateEgressOnlyGateway", _NEW),
    Naming(
        *("POST /v1/subnets", "vpc", "vpc", "network:CreateSubnet"),
        {**_NEW, "cidr_ipv4": "10.200.1.0/24"},
    ),
    Naming(
        "POST /v1/internet-gateways/{internet_gateway_id}/attach",
        *("vpc", "vpc", "network:AttachInternetGateway"),
    ),
    Naming("PATCH /v1/subnets/{subnet_id}", "route_table", "route-table", "network:UpdateSubnet"),
    Naming("POST /v1/repositories", "kms_key", "key", "registry:CreateRepository", _NEW),
    Naming("PUT /v1/encryption-binding", "kms_key", "key", "registry:PutEncryptionBinding"),
    Naming(
        "PUT /v1/repositories/{repository_id}/encryption-binding",
        *("kms_key", "key", "registry:PutEncryptionBinding"),
    ),
    Naming("POST /v1/buckets", "kms_key", "key", "storage:CreateBucket", _NEW),
    Naming("PATCH /v1/buckets/{bucket}", "kms_key", "key", "storage:UpdateBucket"),
    Naming("POST /v1/queues", *_REDRIVE, "queue:CreateQueue", {**_NEW, **_QUEUE}),
    Naming("PATCH /v1/queues/{queue_id}", *_REDRIVE, "queue:UpdateQueue", _QUEUE),
    Naming(
        *(_SUBSCRIPTIONS, "endpoint", "queue", "notifications:Subscribe"), {"protocol": "queue"}
    ),
    Naming(
        *(_SUBSCRIPTIONS, *_REDRIVE, "notifications:Subscribe"),
        {"protocol": "https", "endpoint": f"https://192.0.32.7/{ANEW}", **_REDRIVEN},
    ),
    Naming(
        "PATCH /v1/topics/{topic_id}/subscriptions/{subscription_id}",
        *(*_REDRIVE, "notifications:UpdateSubscription", _REDRIVEN),
    ),
    Naming(
        *("POST /v1/identities", *_POOL, "email:CreateIdentity"),
        {"value": f"{ANEW}.example.com", "kind": "domain"},
    ),
    Naming("PATCH /v1/identities/{identity_id}", *_POOL, "email:UpdateIdentity"),
    Naming("POST /v1/dedicated-ips", *_POOL, "email:RequestDedicatedIP"),
    Naming("PATCH /v1/dedicated-ips/{dedicated_ip_id}", *_POOL, "email:UpdateDedicatedIP"),
    Naming(
        *("POST /v1/messages", "template", "template", "email:SendMessage"),
        {"from": "ada@mail-0.example.com", "to": ["bob@example.com"]},
    ),
    Naming(
        *("POST /v1/event-rules", "topic", "topic", "registry:PutEventRule"),
        {"event_types": ["registry.tag.moved"]},
    ),
    Naming(_ATTACHMENTS, "service_account", "service-account", _ATTACH, on=_POLICIES),
    Naming(_ATTACHMENTS, "role", "role", _ATTACH, on=_POLICIES),
    Naming("POST /v1/assume-role", "role", "role", right="iam:AssumeRole", is_across_accounts=True),
    Naming(
        *("POST /v1/policy-simulations", "principal", "service-account"),
        more={"actions": ["registry:PullImage"], "resource": IT},
        right="iam:SimulatePolicy",
        forms=("crn",),
    ),
    Naming(
        *("POST /v1/load-balancers", "subnet", "subnet", "loadbalancer:CreateLoadBalancer"),
        {**_NEW, "listeners": [_HTTP], "backends": [_WEB]},
    ),
    Naming(
        *(_BALANCER, "security_groups[]", "security-group", _CHANGED), {"security_groups": [IT]}
    ),
    Naming(
        *(_BALANCER, "listeners[].certificate", "certificate", _CHANGED),
        {"listeners": [_HTTPS], "backends": [_WEB]},
    ),
)
OF_NETWORKS: Final = {
    ("POST /v1/subnets", "route_table"),
    *(
        (f"{operation} /v1/{path}", field)
        for noun, one, fields in (
            ("route-tables", "route_table_id", ("routes[].destination", "routes[].target")),
            ("security-groups", "security_group_id", ("rules[].destination", "rules[].source")),
            ("instance-pools", "instance_pool_id", ("security_groups[]", "command[]")),
        )
        for operation, path in (("POST", noun), ("PATCH", f"{noun}/{{{one}}}"))
        for field in fields
    ),
}
"""Asked after the right to the VPC or the subnet, by the tests of those; a command is none."""
NAMES_NOTHING: Final = {
    (operation, "" if field == "(body)" else field)
    for line in Path(__file__).with_name("names_nothing.txt").read_text("ascii").splitlines()
    if line and not line.startswith("#")
    for operation, _, fields in [line.partition(": ")]
    for field in fields.split()
}
"""Fields that name no resource with a right of its own, each with its operation."""
OF_PERSONS: Final = {("POST /v1/users/me/container-passwords", "role")}
"""A person has no right to ask for: who is not assigned to the role is told that there is none."""
OF_BALANCERS: Final = {
    ("POST /v1/load-balancers", "security_groups[]"),
    ("POST /v1/load-balancers", "listeners[].certificate"),
    ("POST /v1/load-balancers", "backends[].targets[].pool"),
    ("PATCH /v1/load-balancers/{load_balancer_id}", "backends[].targets[].pool"),
}
"""Asked after the right to the subnet, as a change asks; pools by `test_load_balancers`."""
OF_CLUSTERS: Final = {
    ("POST /v1/clusters", "bucket"),
    ("POST /v1/clusters/{cluster_id}/restore", "bucket"),
    ("POST /v1/clusters/{cluster_id}/backups/{backup_id}/restore", "bucket"),
    ("POST /v1/clusters/{cluster_id}/restore", "backup"),
    ("POST /v1/clusters/{cluster_id}/backups", "kind"),
}
"""Two rights are asked for a bucket (`test_database_clusters`); a backup is of the
cluster, and a kind is no resource."""
OF_OPERATORS: Final = {("PUT /v1/quotas/{name}", "account")}
"""Only an operator may name another account (`test_quotas`)."""


def test_each_field_of_a_request_that_names_a_resource_is_known(described: dict[str, Any]) -> None:
    fields = set(_fields(described))
    assert len(fields) > 100
    naming = {(each.operation, each.field) for each in NAMING}
    assert naming <= fields
    elsewhere = OF_PERSONS | OF_BALANCERS | OF_CLUSTERS | OF_NETWORKS | OF_OPERATORS
    by_hand = fields - naming - elsewhere - resources.fields()
    assert by_hand - NAMES_NOTHING == set()
    assert NAMES_NOTHING - by_hand == set()


def _fields(described: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the operation and the path of each text in a body."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                for field in _texts(described, content.get("schema", {}), ""):
                    yield f"{method.upper()} {path}", field


def _texts(described: dict[str, Any], shape: dict[str, Any], path: str) -> Iterator[str]:
    if "$ref" in shape:
        shape = described["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
    for choice in (*shape.get("anyOf", ()), *shape.get("oneOf", ())):
        yield from _texts(described, choice, path)
    yield from _texts(described, shape["items"], f"{path}[]") if "items" in shape else ()
    for name, member in shape.get("properties", {}).items():
        yield from _texts(described, member, f"{path}.{name}" if path else name)
    is_free = not {"enum", "const"} & shape.keys() and shape.get("format") != "date-time"
    if "string" in str(shape.get("type", "")) and is_free:
        yield path


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Return an install that all these tests share: each has callers of its own."""
    async with open_served(tmp_path_factory.mktemp("named") / "data") as made:
        yield made


@pytest.fixture(scope="module")
async def there(served: Served) -> dict[str, str]:
    """Make one thing of each kind, called ``there``; return the ids by kind."""
    return {kind: await make(served, served.acme, kind, "there") for kind in KINDS}


@pytest.fixture(scope="module")
async def theirs(served: Served) -> dict[str, str]:
    """Make the same for another account, called ``theirs``."""
    return {kind: await make(served, served.globex, kind, "theirs") for kind in KINDS}


async def caller(served: Served, *statements: Statement) -> str:
    """Return the token of a new program that may do this and no more."""
    return await served.token_that_may(*statements, name=f"caller-{uuid4().hex}")


async def make(served: Served, tenant: Tenant, kind: str, name: str) -> str:
    """Make a thing of a tenant; return its id."""
    more = json.loads(json.dumps(KINDS[kind][1]).replace("<account>", tenant.account_id))
    path, body = f"/v1/{kind}s", {"name": name, **more}
    if kind == "certificate":
        path, body = f"{path}/upload", body | uploaded("there.test", served.clock())
    return str((await served.make(path, body, token=tenant.program_token))["id"])


def path_of(served: Served, operation: str) -> tuple[str, str]:
    """Return method and path of an operation, with the ids of acme."""
    method, _, template = operation.partition(" ")
    path = ""
    for part in re.split(r"(\{\w+\})", template):
        key = re.sub(r"\{\w+\}", "{}", template[: template.find(part) + len(part)])
        path += served.acme.ids[key] if part.startswith("{") else part
    return method, path


def forms_of(naming: Naming, served: Served, name: str, its_id: str) -> dict[str, str]:
    """Return what means a thing, by form."""
    by_form = {"name": name, "id": its_id, "crn": naming.crn(served.acme.account_id, name)}
    return {form: value for form, value in by_form.items() if form in naming.forms}


async def ask(served: Served, naming: Naming, token: str, value: str) -> tuple[int, str]:
    """Return the answer to naming `value`, without what it says of this request alone."""
    method, path = path_of(served, naming.operation)
    answer = await served.ask(method, path, naming.body(value), token=token)
    body = answer.json()
    body.get("error", {}).pop("request_id", None)
    return answer.status_code, UUIDS.sub("<id>", json.dumps(body))


def own(naming: Naming) -> list[Statement]:
    return [allow(naming.needed, on=naming.on)] if naming.needed else []


def each_naming(test: Any) -> Any:  # noqa: ANN401 - a decorator
    ids = [f"{each.operation} {each.field}" for each in NAMING]
    return pytest.mark.parametrize("naming", NAMING, ids=ids)(test)


@each_naming
async def test_who_may_not_use_it_is_told_the_same_whether_or_not_it_exists(
    served: Served, there: dict[str, str], naming: Naming
) -> None:
    """What is malformed or of another account is 400 without the right, too: it tells nothing."""
    of_another = allow(naming.action, on=naming.crn("*", "mine-*"))
    token = await caller(served, *own(naming), of_another)
    exist = forms_of(naming, served, "there", there[naming.kind])
    absent = forms_of(naming, served, "nothing", UNKNOWN)
    for form, value in exist.items():
        found = await ask(served, naming, token, value)
        assert found[0] == 403, (form, found)
        assert await ask(served, naming, token, absent[form]) == found, form
    for form, value in forms_of(naming, served, "mine-nothing", UNKNOWN).items():
        status, said = await ask(served, naming, token, value)
        assert status == (403 if form == "id" else 404), (form, said)
    values = ["crn:nothing"]
    if not naming.is_across_accounts and naming.operation != "POST /v1/policy-simulations":
        values.append(naming.crn(served.globex.account_id, "there"))
    for value in values:
        status, said = await ask(served, naming, token, value)
        assert status == 400, said


@each_naming
async def test_a_denial_tells_of_an_id_no_more_than_a_missing_right(
    served: Served, there: dict[str, str], naming: Naming
) -> None:
    """A name is in the caller's own policy, whether or not there is such a thing."""
    denied = deny(naming.action, on=naming.crn("*", "there"))
    elsewhere = allow(naming.action, on=naming.crn("*", "mine-*"))
    token = await caller(served, *own(naming), elsewhere, denied)
    for form in naming.forms:
        found = await ask(
            served, naming, token, forms_of(naming, served, "there", there[naming.kind])[form]
        )
        assert found[0] == 403
        assert form != "id" or await ask(served, naming, token, UNKNOWN) == found


@each_naming
async def test_who_may_use_it_is_told_that_it_is_missing(
    served: Served, there: dict[str, str], theirs: dict[str, str], naming: Naming
) -> None:
    token = await caller(served, *own(naming), allow(naming.action))
    absent = [*forms_of(naming, served, "nothing", UNKNOWN).values()]
    if not naming.is_across_accounts:
        absent += forms_of(naming, served, "theirs", theirs[naming.kind]).values()
    for value in absent:
        status, said = await ask(served, naming, token, value)
        assert status == 404, (value, said)
    for value in forms_of(naming, served, "there", there[naming.kind]).values():
        status, said = await ask(served, naming, token, value)
        assert status in (200, 201, 202, 409), said


def test_each_path_that_names_what_another_family_has_is_known() -> None:
    """What a path names is listed above it, or it is the key of the next test."""
    listed = {each.path for each in OPERATIONS if each.method == "GET"}
    named = [re.match(r"(/v1/[a-z-]+)/{\w+}", each.path) for each in OPERATIONS if each.is_built]
    elsewhere = {found[1] for found in named if found} - listed
    assert elsewhere == {"/v1/key-usage", "/v1/certificate-authorities"}


async def test_a_key_whose_use_may_not_be_seen_is_unknown(
    served: Served, there: dict[str, str]
) -> None:
    """It is asked of all repositories, since what a key protects may be anywhere."""
    some = allow("registry:DescribeKeyUsage", on="crn:registry:local:*:repository/mine-*")
    token = await caller(served, some, allow("kms:*"))
    keys = (there["key"], served.globex.ids["/v1/keys/{}"], UNKNOWN)
    answers = [await served.ask("GET", f"/v1/key-usage/{each}", token=token) for each in keys]
    assert {each.status_code for each in answers} == {403}
    said = {json.dumps(each.json()["error"] | {"request_id": ""}) for each in answers}
    assert len(said) == 1


BUCKETS: Final = tuple(each for each in OPERATIONS if each.path.startswith("/v1/buckets/{bucket}"))
BUCKET_BODIES: Final[dict[str, object]] = {
    "PATCH /v1/buckets/{bucket}": {},
    "PUT /v1/buckets/{bucket}/cors": {
        "cors_rules": [{"allowed_origins": ["*"], "allowed_methods": ["GET"]}]
    },
    "PUT /v1/buckets/{bucket}/objects/{key}": b"bytes",
    "POST /v1/buckets/{bucket}/multipart-uploads": {"key": "key"},
    "PUT /v1/buckets/{bucket}/multipart-uploads/{upload_id}/parts/{part_number}": b"part",
    "POST /v1/buckets/{bucket}/multipart-uploads/{upload_id}/complete": {
        "parts": [{"part_number": 1, "etag": "e"}]
    },
}
BUCKET: Final = "crn:storage:local:*:bucket/"


async def ask_bucket(
    served: Served, operation: Operation, token: str, bucket: str, upload: str = UNKNOWN
) -> tuple[int, str]:
    """Return the answer of an operation on a bucket, without what it says of this request alone."""
    named = {"bucket": bucket, "upload_id": upload, "part_number": "1", "key": "key-of-acme"}
    asked = f"{operation.method} {operation.path}"
    path, body = operation.path.format(**named), BUCKET_BODIES.get(asked)
    answer = await served.ask(operation.method, path, body, token=token)
    return answer.status_code, UUIDS.sub("<id>", answer.text)


def test_all_operations_on_a_bucket_are_asked() -> None:
    assert len(BUCKETS) == 17
    assert BUCKET_BODIES.keys() <= {f"{each.method} {each.path}" for each in BUCKETS}


@pytest.mark.parametrize("operation", BUCKETS, ids=lambda each: f"{each.method} {each.path}")
async def test_a_bucket_that_one_may_not_use_is_told_like_one_that_is_not_there(
    served: Served, operation: Operation
) -> None:
    assert operation.action is not None
    token = await caller(served, allow(operation.action, on=f"{BUCKET}mine-*"))
    upload = served.acme.ids["/v1/buckets/{}/multipart-uploads/{}"]
    own, theirs = f"bucket-of-{served.acme.handle}", f"bucket-of-{served.globex.handle}"
    answers = [
        await ask_bucket(served, operation, token, own, upload),
        await ask_bucket(served, operation, token, own),
        await ask_bucket(served, operation, token, "nothing", upload),
        await ask_bucket(served, operation, token, theirs, upload),
    ]
    assert answers[0][0] == 403, answers[0]
    assert set(answers) == {answers[0]}
    status, said = await ask_bucket(served, operation, token, "mine-nothing")
    assert status == 404, said
    assert "bucket_not_found" in said
    full = served.acme.program_token
    absent = await ask_bucket(served, operation, full, "nothing")
    assert absent[0] == 404
    assert await ask_bucket(served, operation, full, theirs, upload) == absent
    for name in ("UPPER", "*", "a?b", "%25"):  # no bucket can be called so: that is told to all
        assert await ask_bucket(served, operation, token, quote(name, safe="%")) == absent, name


@pytest.mark.parametrize(
    "operation",
    [each for each in BUCKETS if "{upload_id}" in each.path],
    ids=lambda each: f"{each.method} {each.path}",
)
async def test_an_upload_that_one_may_not_use_is_told_like_one_that_is_not_there(
    served: Served, operation: Operation
) -> None:
    assert operation.action is not None
    own = f"bucket-of-{served.acme.handle}"
    elsewhere = allow(operation.action, on=f"{BUCKET}{own}/mine/*")
    denied = deny(operation.action, on=f"{BUCKET}{own}/key-of-acme")
    upload = served.acme.ids["/v1/buckets/{}/multipart-uploads/{}"]
    for statements in ((elsewhere,), (elsewhere, denied)):
        token = await caller(served, *statements)
        found = await ask_bucket(served, operation, token, own, upload)
        assert found[0] == 403
        assert await ask_bucket(served, operation, token, own) == found
    token = await caller(served, allow(operation.action, on=f"{BUCKET}{own}/*"))
    status, said = await ask_bucket(served, operation, token, own)
    assert (status, "upload_not_found" in said) == (404, True), said
