"""A request that names another resource: its right is asked before it matters if there is one.

`NAMING` has every field of a body that names a resource with a right of its own; the first test
fails for a field that stands neither there nor in `NAMES_NOTHING`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest

from tests import described as resources
from tests.certificates import uploaded
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS, Operation
from tests.tenants import Statement, allow, deny, document

UNKNOWN: Final = "01890000-0000-7000-8000-0000000000ff"
UUIDS: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class Naming(NamedTuple):
    """A field of a request that names a resource."""

    operation: str
    field: str
    kind: str
    """Of `KINDS`."""
    action: str
    """The right to what is named."""
    body: Callable[[str], dict[str, Any]]
    needed: str = ""
    """The action of the operation itself, if it is another one."""
    on: str = "*"
    """The resource of the operation itself."""
    forms: tuple[str, ...] = ("name", "id", "crn")
    is_across_accounts: bool = False
    """True if it may name what is another account's."""


KINDS: Final = {
    "ip-pool": "crn:email:local:{}:ip-pool/",
    "key": "crn:kms:local:{}:key/",
    "template": "crn:email:local:{}:template/",
    "queue": "crn:queue:local:{}:queue/",
    "certificate": "crn:certificate:local:{}:certificate/",
    "security-group": "crn:network:local:{}:security-group/",
    "subnet": "crn:network:local:{}:subnet/",
    "route-table": "crn:network:local:{}:route-table/",
    "topic": "crn:notifications:local:{}:topic/",
    "vpc": "crn:network:local:{}:vpc/",
    "service-account": "crn:iam::{}:service-account/",
    "role": "crn:iam::{}:role/",
}
_KEY: Final = ("kms_key", "key", "kms:UseKey")
_POOL: Final = ("ip_pool", "ip-pool", "email:GetIPPool")
_REDRIVE: Final = ("redrive_policy.dead_letter_queue", "queue", "queue:SendMessage")


def _redrive(value: str) -> dict[str, Any]:
    return {"dead_letter_queue": value, "max_leases": 3}


_WEB: Final = {"name": "web", "protocol": "http"}


def _https(value: str) -> dict[str, Any]:
    listener = {"port": 443, "protocol": "https", "backend": "web", "certificate": value}
    return {"listeners": [listener], "backends": [_WEB]}


_BALANCERS: Final = (
    Naming(
        "POST /v1/load-balancers",
        "subnet",
        "subnet",
        "network:GetSubnet",
        lambda value: {
            "name": "new",
            "subnet": value,
            "listeners": [{"port": 80, "protocol": "http", "backend": "web"}],
            "backends": [_WEB],
        },
        "loadbalancer:CreateLoadBalancer",
    ),
    *(
        Naming(
            "PATCH /v1/load-balancers/{load_balancer_id}",
            field,
            kind,
            action,
            body,
            "loadbalancer:UpdateLoadBalancer",
        )
        for field, kind, action, body in (
            (
                "security_groups[]",
                "security-group",
                "network:GetSecurityGroup",
                lambda value: {"security_groups": [value]},
            ),
            (
                "listeners[].certificate",
                "certificate",
                "certificate:GetCertificate",
                _https,
            ),
        )
    ),
)
_MESSAGE: Final = {"from": "ada@mail-0.example.com", "to": ["bob@example.com"]}


def _in_vpc(more: dict[str, Any], value: str) -> dict[str, Any]:
    return {"name": "new", "vpc": value, **more}


_VPC: Final = ("vpc", "vpc", "network:GetVpc")
_NETWORKS: Final = (
    *(
        Naming(
            f"POST /v1/{noun}",
            *_VPC,
            partial(_in_vpc, more),
            f"network:Create{made}",
        )
        for noun, made, more in (
            ("security-groups", "SecurityGroup", {}),
            ("route-tables", "RouteTable", {}),
            ("egress-only-gateways", "EgressOnlyGateway", {}),
            ("subnets", "Subnet", {"cidr_ipv4": "10.200.1.0/24"}),
        )
    ),
    Naming(
        "POST /v1/internet-gateways/{internet_gateway_id}/attach",
        *_VPC,
        lambda value: {"vpc": value},
        "network:AttachInternetGateway",
    ),
    Naming(
        "PATCH /v1/subnets/{subnet_id}",
        "route_table",
        "route-table",
        "network:GetRouteTable",
        lambda value: {"route_table": value},
        "network:UpdateSubnet",
    ),
)
OF_NETWORKS: Final = {
    ("POST /v1/subnets", "route_table"),
    *(
        (operation, field)
        for operations, fields in (
            (
                ("POST /v1/route-tables", "PATCH /v1/route-tables/{route_table_id}"),
                ("routes[].destination", "routes[].target"),
            ),
            (
                ("POST /v1/security-groups", "PATCH /v1/security-groups/{security_group_id}"),
                ("rules[].destination", "rules[].source"),
            ),
            (
                ("POST /v1/instance-pools", "PATCH /v1/instance-pools/{instance_pool_id}"),
                ("security_groups[]", "command[]"),
            ),
        )
        for operation in operations
        for field in fields
    ),
}
"""Asked after the right to the VPC or the subnet, by the tests of those; a command is none."""
NAMING: Final = (
    *_NETWORKS,
    Naming(
        "POST /v1/repositories",
        *_KEY,
        lambda value: {"name": "new", "kms_key": value},
        "registry:CreateRepository",
    ),
    *(
        Naming(operation, *_KEY, lambda value: {"kms_key": value}, "registry:PutEncryptionBinding")
        for operation in (
            "PUT /v1/encryption-binding",
            "PUT /v1/repositories/{repository_id}/encryption-binding",
        )
    ),
    Naming(
        "POST /v1/buckets",
        *_KEY,
        lambda value: {"name": "new", "kms_key": value},
        "storage:CreateBucket",
    ),
    Naming(
        "PATCH /v1/buckets/{bucket}",
        *_KEY,
        lambda value: {"kms_key": value},
        "storage:UpdateBucket",
    ),
    Naming(
        "POST /v1/queues",
        *_REDRIVE,
        lambda value: {"name": "new", "redrive_policy": _redrive(value)},
        "queue:CreateQueue",
    ),
    Naming(
        "PATCH /v1/queues/{queue_id}",
        *_REDRIVE,
        lambda value: {"redrive_policy": _redrive(value)},
        "queue:UpdateQueue",
    ),
    Naming(
        "POST /v1/topics/{topic_id}/subscriptions",
        "endpoint",
        "queue",
        "queue:SendMessage",
        lambda value: {"protocol": "queue", "endpoint": value},
        "notifications:Subscribe",
    ),
    Naming(
        "POST /v1/topics/{topic_id}/subscriptions",
        *_REDRIVE,
        lambda value: {
            "protocol": "https",
            "endpoint": "https://192.0.32.7/new",
            "redrive_policy": {"dead_letter_queue": value},
        },
        "notifications:Subscribe",
    ),
    Naming(
        "PATCH /v1/topics/{topic_id}/subscriptions/{subscription_id}",
        *_REDRIVE,
        lambda value: {"redrive_policy": {"dead_letter_queue": value}},
        "notifications:UpdateSubscription",
    ),
    Naming(
        "POST /v1/identities",
        *_POOL,
        lambda value: {"value": "new.example.com", "kind": "domain", "ip_pool": value},
        "email:CreateIdentity",
    ),
    Naming(
        "PATCH /v1/identities/{identity_id}",
        *_POOL,
        lambda value: {"ip_pool": value},
        "email:UpdateIdentity",
    ),
    Naming(
        "POST /v1/dedicated-ips",
        *_POOL,
        lambda value: {"ip_pool": value},
        "email:RequestDedicatedIP",
    ),
    Naming(
        "PATCH /v1/dedicated-ips/{dedicated_ip_id}",
        *_POOL,
        lambda value: {"ip_pool": value},
        "email:UpdateDedicatedIP",
    ),
    Naming(
        "POST /v1/messages",
        "template",
        "template",
        "email:GetTemplate",
        lambda value: {**_MESSAGE, "template": value},
        "email:SendMessage",
    ),
    Naming(
        "POST /v1/event-rules",
        "topic",
        "topic",
        "notifications:Publish",
        lambda value: {"topic": value, "event_types": ["registry.tag.moved"]},
        "registry:PutEventRule",
    ),
    *(
        Naming(
            "POST /v1/policies/{policy_id}/attachments",
            kind.replace("-", "_"),
            kind,
            "iam:AttachPolicy",
            body,
            "iam:AttachPolicy",
            "crn:iam::*:policy/*",
        )
        for kind, body in (
            ("service-account", lambda value: {"service_account": value}),
            ("role", lambda value: {"role": value}),
        )
    ),
    Naming(
        "POST /v1/assume-role",
        "role",
        "role",
        "iam:AssumeRole",
        lambda value: {"role": value},
        is_across_accounts=True,
    ),
    Naming(
        "POST /v1/policy-simulations",
        "principal",
        "service-account",
        "iam:SimulatePolicy",
        lambda value: {
            "principal": value,
            "actions": ["registry:PullImage"],
            "resource": value.replace("service-account/there", "role/role"),
        },
        forms=("crn",),
    ),
    *_BALANCERS,
)
NAMES_NOTHING: Final = frozenset(
    {
        # What is made, or said of it.
        *("", "name", "description", "handle", "subject", "message", "body", "content_type"),
        *("session_name", "policy_name", "names", "template", "email", "region", "key", "prefix"),
        *("certificate_pem", "chain_pem", "private_key_pem", "csr_pem", "domains"),
        *("client_id", "issuer", "display_name", "from", "to", "cc", "bcc", "html", "text"),
        *("scopes", "groups_claim", "email_verified_claim", "email_domains", "username"),
        *("allowed_headers", "allowed_origins", "expose_headers", "immutable_tag_exclusions"),
        *("tag_patterns", "tag_prefixes", "event_types", "repository_prefix", "source_ip", "group"),
        *("upstream_url", "upstream_prefix", "plaintext", "ciphertext", "actions", "etag"),
        *("backend", "address", "path", "vip"),
        *("host", "database", "ca", "base_cron", "incremental_cron", "verify_cron"),
        # What proves who asks, or belongs to it.
        *("client_secret", "secret", "password", "current_password", "new_password", "code"),
        *("repeated_password", "code_verifier", "refresh_token", "token", "token_type_hint"),
        *("redirect_uri", "form", "lease_ids"),
        # What is inside the resource that the path names, or at an upstream.
        *("digest", "digests", "tag", "tags", "repository"),
        # Members of the caller's organization, and what it has: there is no right to them, so who
        # may do the operation is told.
        *("user", "organization", "identity_provider", "payment_method", "List-Unsubscribe"),
        # Patterns that are compared, and never looked up.
        *("uncounted_pullers",),
        # Asked about: the answer tells what policies say, not whether there is such a resource.
        *("resource",),
    }
)


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
    unknown = {
        (operation, field)
        for operation, field in fields
        - naming
        - OF_PERSONS
        - OF_BALANCERS
        - OF_CLUSTERS
        - OF_NETWORKS
        - OF_OPERATORS
        - resources.fields()
        if field.rpartition(".")[2].removesuffix("[]") not in NAMES_NOTHING
    }
    assert unknown == set()


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


@pytest.fixture
async def there(served: Served) -> dict[str, str]:
    """Make one thing of each kind, called ``there``; return the ids by kind."""
    token = served.acme.program_token
    trusted = {"effect": "allow", "principals": [served.acme.account_id]}
    trust = {"version": "1", "statements": [trusted]}
    made = {
        "ip-pool": await served.make("/v1/ip-pools", {"name": "there"}, token=token),
        "key": await served.make("/v1/keys", {"name": "there"}, token=token),
        "template": await served.make(
            "/v1/templates", {"name": "there", "subject": "Hello", "text": "Hello."}, token=token
        ),
        "queue": await served.make("/v1/queues", {"name": "there"}, token=token),
        "certificate": await served.make(
            "/v1/certificates/upload",
            {"name": "there", **uploaded("there.test", served.clock())},
            token=token,
        ),
        "security-group": await served.make(
            "/v1/security-groups", {"name": "there", "vpc": "vpc-0"}, token=token
        ),
        "subnet": await served.make(
            "/v1/subnets",
            {"name": "there", "vpc": "vpc-0", "cidr_ipv4": "10.0.200.0/24"},
            token=token,
        ),
        "route-table": await served.make(
            "/v1/route-tables", {"name": "there", "vpc": "vpc-0"}, token=token
        ),
        "topic": await served.make("/v1/topics", {"name": "there"}, token=token),
        "vpc": await served.make(
            "/v1/vpcs", {"name": "there", "cidr_ipv4": "10.200.0.0/16"}, token=token
        ),
        "service-account": await served.make(
            "/v1/service-accounts", {"name": "there"}, token=token
        ),
        "role": await served.make(
            "/v1/roles", {"name": "there", "trust_policy": trust}, token=token
        ),
    }
    assert made.keys() == KINDS.keys()
    return {kind: record["id"] for kind, record in made.items()}


async def add_program(served: Served, name: str, *statements: Statement) -> str:
    """Return the token of a new program of acme that has these rights."""
    token = served.acme.program_token
    program = await served.make("/v1/service-accounts", {"name": name}, token=token)
    path = f"/v1/service-accounts/{program['id']}"
    key = await served.make(f"{path}/access-keys", {}, token=token)
    policy = {"name": name, "document": document(*statements)}
    made = await served.make("/v1/policies", policy, token=token)
    attached = f"/v1/policies/{made['id']}/attachments"
    await served.make(attached, {"service_account": program["id"]}, token=token)
    return await served.program_token(key["access_key_id"], key["secret_access_key"])


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
    prefix = KINDS[naming.kind].format(served.acme.account_id)
    by_form = {"name": name, "id": its_id, "crn": prefix + name}
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
    of_another = allow(naming.action, on=KINDS[naming.kind].format("*") + "mine-*")
    token = await add_program(served, "caller", *own(naming), of_another)
    exist = forms_of(naming, served, "there", there[naming.kind])
    absent = forms_of(naming, served, "nothing", UNKNOWN)
    for form, value in exist.items():
        found = await ask(served, naming, token, value)
        assert found[0] == 403, (form, found)
        assert await ask(served, naming, token, absent[form]) == found, form
    for form, value in forms_of(naming, served, "mine-nothing", UNKNOWN).items():
        status, said = await ask(served, naming, token, value)
        assert status == (403 if form == "id" else 404), (form, said)


@each_naming
async def test_a_denial_tells_of_an_id_no_more_than_a_missing_right(
    served: Served, there: dict[str, str], naming: Naming
) -> None:
    """A name is in the caller's own policy, whether or not there is such a thing."""
    denied = {
        "effect": "deny",
        "actions": [naming.action],
        "resources": [KINDS[naming.kind].format("*") + "there"],
    }
    elsewhere = allow(naming.action, on=KINDS[naming.kind].format("*") + "mine-*")
    token = await add_program(served, "caller", *own(naming), elsewhere, denied)
    for form in naming.forms:
        found = await ask(
            served, naming, token, forms_of(naming, served, "there", there[naming.kind])[form]
        )
        assert found[0] == 403
        assert form != "id" or await ask(served, naming, token, UNKNOWN) == found


@each_naming
async def test_who_may_use_it_is_told_that_it_is_missing(
    served: Served, there: dict[str, str], naming: Naming
) -> None:
    token = await add_program(served, "caller", *own(naming), allow(naming.action))
    for value in forms_of(naming, served, "nothing", UNKNOWN).values():
        status, said = await ask(served, naming, token, value)
        assert status == 404, said
    for value in forms_of(naming, served, "there", there[naming.kind]).values():
        status, said = await ask(served, naming, token, value)
        assert status in (200, 201, 202, 409), said


@each_naming
async def test_what_is_malformed_or_foreign_is_told_to_all(served: Served, naming: Naming) -> None:
    """Without the right, too: it says nothing of what exists."""
    elsewhere = allow(naming.action, on=KINDS[naming.kind].format("*") + "mine-*")
    token = await add_program(served, "caller", *own(naming), elsewhere)
    values = ["crn:nothing"]
    if not naming.is_across_accounts and naming.operation != "POST /v1/policy-simulations":
        values.append(KINDS[naming.kind].format(served.globex.account_id) + "there")
    for value in values:
        status, said = await ask(served, naming, token, value)
        assert status == 400, said


def test_each_path_that_names_what_another_family_has_is_known() -> None:
    """What a path names is listed above it, or it is the key of the next test."""
    listed = {each.path for each in OPERATIONS if each.method == "GET"}
    named = [re.match(r"(/v1/[a-z-]+)/{\w+}", each.path) for each in OPERATIONS if each.is_built]
    elsewhere = {found[1] for found in named if found} - listed
    assert elsewhere == {"/v1/key-usage", "/v1/certificate-authorities"}


async def test_a_key_whose_use_one_may_not_see_is_told_like_one_that_is_not_there(
    served: Served, there: dict[str, str]
) -> None:
    """It is asked of all repositories, since what a key protects may be anywhere."""
    some = allow("registry:DescribeKeyUsage", on="crn:registry:local:*:repository/mine-*")
    token = await add_program(served, "caller", some, allow("kms:*"))
    own, theirs = there["key"], served.globex.ids["/v1/keys/{}"]
    answers = [
        await served.ask("GET", f"/v1/key-usage/{each}", token=token)
        for each in (own, theirs, UNKNOWN)
    ]
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


def each_operation_on_buckets(test: Any) -> Any:  # noqa: ANN401 - a decorator
    ids = [f"{each.method} {each.path}" for each in BUCKETS]
    return pytest.mark.parametrize("operation", BUCKETS, ids=ids)(test)


def test_all_operations_on_a_bucket_are_asked() -> None:
    assert len(BUCKETS) == 17
    assert BUCKET_BODIES.keys() <= {f"{each.method} {each.path}" for each in BUCKETS}


@each_operation_on_buckets
async def test_a_bucket_that_one_may_not_use_is_told_like_one_that_is_not_there(
    served: Served, operation: Operation
) -> None:
    assert operation.action is not None
    token = await add_program(served, "caller", allow(operation.action, on=f"{BUCKET}mine-*"))
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
    for name, statements in (("one", (elsewhere,)), ("two", (elsewhere, denied))):
        token = await add_program(served, name, *statements)
        found = await ask_bucket(served, operation, token, own, upload)
        assert found[0] == 403
        assert await ask_bucket(served, operation, token, own) == found
    token = await add_program(served, "three", allow(operation.action, on=f"{BUCKET}{own}/*"))
    status, said = await ask_bucket(served, operation, token, own)
    assert (status, "upload_not_found" in said) == (404, True), said
