"""The console in headless Chromium, watched: what its pages load, say and break."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    expect,
    sync_playwright,
)

from cloudcore.clock import system_clock
from tests.certificates import uploaded
from tests.clients.console_world import SBOM, World
from tests.entrepot import ADMIN, PASSWORD
from tests.owed_invoices import owe
from tests.run_clusters import RunCluster, run_cluster
from tests.tools import require_tool

DESKTOP: Final[dict[str, Any]] = {
    "viewport": {"width": 1280, "height": 800},
    "color_scheme": "light",
}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 360, "height": 740},
    "color_scheme": "dark",
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}

_PATIENCE: Final = 30_000
"""Milliseconds."""
_OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_SPILLS: Final = """() => [...document.querySelectorAll("td, tbody th, dd, p, h1, h2, li")]
  .filter((each) => each.checkVisibility() && !each.closest(".aloud"))
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent.trim())"""
_LOW_CONTRASTS: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (front, back) => {
    const part = front[3] / 255;
    return [0, 1, 2].map((n) => front[n] * part + back[n] * (1 - part));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map(
      (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(channels(getComputedStyle(at).backgroundColor));
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("svg") || !element.checkVisibility()) continue;
    const back = ground(element);
    const front = over(channels(getComputedStyle(element).color), back);
    const [low_, high] = [light(front), light(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low_ + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


@dataclass
class Watched:
    """A page, and what went wrong in it."""

    page: Page
    world: World
    faults: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    expected: tuple[int, ...] = ()
    """Statuses of errors that the test provokes."""

    @property
    def url(self) -> str:
        """Return where the console is."""
        return self.world.url

    def watch(self) -> Watched:
        """Write down each error and each request to elsewhere, from now on."""
        host = urlsplit(self.url).netloc
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda told: self._told(told.type, told.text))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on(
            "request",
            lambda asked: (
                self.foreign.append(asked.url) if urlsplit(asked.url).netloc != host else None
            ),
        )
        return self

    def open(self, path: str) -> None:
        """Open a page of the console."""
        self.page.goto(self.url + path)

    def sign_in(self, to: str = "/console") -> None:
        """Sign the admin in, on the way to a page."""
        self.world.pusher.forget_attempts()
        self.open(to)
        self.page.fill("#email", ADMIN)
        self.page.fill("#password", PASSWORD)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector(".account")

    def check(self) -> None:
        """Check that the page fits, can be read, and broke nothing so far."""
        for _ in range(20):  # a window that was just resized may need a frame
            if self.page.evaluate(_OVERFLOW) <= 0:
                break
            self.page.wait_for_timeout(100)
        assert self.page.evaluate(_OVERFLOW) <= 0, self.page.url
        assert self.page.evaluate(_SPILLS) == [], self.page.url
        assert self.page.evaluate(_LOW_CONTRASTS) == [], self.page.url
        assert self.faults == []
        assert self.foreign == []

    def _told(self, kind: str, text: str) -> None:
        is_expected = any(f"status of {status}" in text for status in self.expected)
        if kind in ("error", "warning") and not is_expected:
            self.faults.append(text)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's Chromium; nothing is downloaded."""
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=require_tool("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, world: World, **options: Any) -> Iterator[Watched]:  # noqa: ANN401
    """Open a window of a person who has been nowhere yet."""
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(_PATIENCE)
    try:
        yield Watched(context.new_page(), world).watch()
    finally:
        context.close()


def pages_of(world: World) -> list[str]:
    """Return the paths of the console's pages, with what `World.set_up_account` made."""
    base = f"/console/repositories/{world.frontend}"
    parts = (
        "",
        "/tags",
        "/tags/latest",
        "/lifecycle",
        "/storage",
        "/policy",
        "/deleted",
        "/settings",
    )
    call = world.pusher.call
    (program, *_), (policy, *_), (role, *_) = (
        call("GET", f"/v1/{path}")[path.replace("-", "_")]
        for path in ("service-accounts", "policies", "roles")
    )
    return [
        f"/console/service-accounts/{program['id']}",
        f"/console/policies/{policy['id']}",
        f"/console/account-roles/{role['id']}",
        "/console/people",
        f"/console/simulator?principal=role/{role['name']}&resource=shop/api",
        "/console/repositories",
        "/console/repositories?prefix=shop",
        "/console/repositories/deleted",
        "/console/overview",
        "/console/storage",
        "/console/storage/collection",
        "/console/settings",
        "/console/settings/events",
        "/console/settings/quotas",
        "/console/settings/mirrors",
        "/console/settings/keys",
        f"/console/settings/keys/{key_of(world)}",
        "/console/services/topics",
        f"/console/services/topics/{topic_of(world)}",
        "/console/services/queues",
        f"/console/services/queues/{queue_of(world)}",
        "/console/services/certificates",
        f"/console/services/certificates/{certificate_of(world)}",
        "/console/services/buckets",
        f"/console/services/buckets/{bucket_of(world)}",
        "/console/services/suppressions",
        f"/console/services/suppressions/{suppression_of(world)}",
        "/console/services/identities",
        f"/console/services/identities/{identity_of(world)}",
        "/console/services/vpcs",
        f"/console/services/vpcs/{vpc_of(world)}",
        "/console/services/load-balancers",
        f"/console/services/load-balancers/{balancer_of(world)}",
        "/console/services/clusters",
        f"/console/services/clusters/{cluster_of(world).id}",
        f"/console/services/clusters/{cluster_of(world).id}/backups/{cluster_of(world).base}",
        f"/console/services/clusters/{cluster_of(world).id}/backups/{cluster_of(world).failed}",
        *(f"/console/services/{each}" for each in in_vpc(world)),
        "/console/services/messages",
        "/console/services/templates",
        f"/console/services/templates/{template_of(world)}",
        "/console/services/payment-methods",
        f"/console/services/payment-methods/{payment_method_of(world)}",
        "/console/services/invoices",
        f"/console/services/invoices/{invoice_of(world)}",
        f"/console/services/invoices/{invoice_of(world)}/print",
        "/console/audit",
        "/console/usage",
        "/console/service-accounts",
        "/console/policies",
        "/console/policies/new",
        "/console/account-roles",
        f"/console/account-roles/{world.role}",
        world.people,
        f"{world.people}/identity-providers",
        world.provider,
        f"{world.people}/audit",
        f"{world.people}/usage",
        "/console/my-account",
        "/console/accounts",
        "/console/simulator",
        "/console/roles",
        "/console/search?text=FRONT",
        "/console/signed-out",
        *(base + part for part in parts),
        f"{base}?tag_status=any",
        f"/console/repositories/{world.api}/deleted",
        f"/console/repositories/{world.api}/tags/passing",
        f"{base}/images/{world.index}",
        f"{base}/images/{sbom_of(world)}",
        f"{base}/images/{sbom_of(world)}/attachment",
    ]


def key_of(world: World) -> str:
    """Return the id of the newest key."""
    return str(world.pusher.call("GET", "/v1/keys")["keys"][-1]["id"])


def topic_of(world: World) -> str:
    """Return the id of a topic with a subscription."""
    call, name = world.pusher.call, f"told-{uuid4()}"
    made = str(call("POST", "/v1/topics", {"name": name})["topic"]["id"])
    queue = {"protocol": "queue", "endpoint": queue_of(world)}
    call("POST", f"/v1/topics/{made}/subscriptions", queue)
    return made


def template_of(world: World) -> str:
    """Return the id of a new email template."""
    body = {"name": f"welcome-{uuid4()}", "subject": "Welcome, {{ name }}", "html": "<p>Hello</p>"}
    return str(world.pusher.call("POST", "/v1/templates", body)["template"]["id"])


def payment_method_of(world: World) -> str:
    """Return the id of a new payment method."""
    body = {"type": "card", "token": "tok_visa"}
    made = world.pusher.call("POST", "/v1/payment-methods", body)
    return str(made["payment_method"]["id"])


def identity_of(world: World) -> str:
    """Return the id of the only sending identity, which is made when it is asked for first."""
    identities = world.pusher.call("GET", "/v1/identities")["identities"]
    if not identities:
        body = {"kind": "domain", "value": "shop.example"}
        return str(world.pusher.call("POST", "/v1/identities", body)["identity"]["id"])
    return str(identities[0]["id"])


def vpc_of(world: World) -> str:
    """Return the id of a VPC with subnets and both gateways, which is made when first asked for."""
    vpcs = world.pusher.call("GET", "/v1/vpcs?name=shop")["vpcs"]
    if vpcs:
        return str(vpcs[0]["id"])

    def make(many: str, name: str, **body: object) -> dict[str, Any]:
        made = world.pusher.call("POST", f"/v1/{many}", {"name": name, **body})
        (record,) = made.values()
        return dict(record)

    vpc = make("vpcs", "shop", cidr_ipv4="10.0.0.0/16", cidr_ipv6="fd12:3456:789a::/48")
    uplink = make("internet-gateways", "uplink")
    attach = f"/v1/internet-gateways/{uplink['id']}/attach"
    world.pusher.call("POST", attach, {"vpc": "shop"})
    make("egress-only-gateways", "out", vpc="shop")
    for number, name in enumerate(("front", "back")):
        networks = {
            "cidr_ipv4": f"10.0.{number}.0/24",
            "cidr_ipv6": f"fd12:3456:789a:{number}::/64",
        }
        make("subnets", name, vpc="shop", **networks)
    return str(vpc["id"])


def invoice_of(world: World) -> str:
    """Return the id of the only invoice, which is put there when it is asked for first."""
    invoices = world.pusher.call("GET", "/v1/invoices")["invoices"]
    if invoices:
        return str(invoices[0]["id"])
    with closing(sqlite3.connect(world.pusher.data / "metadata.db", timeout=30)) as database:
        return owe(database)


def in_vpc(world: World) -> Iterator[str]:
    """Yield what belongs to the VPC, each as its list and its id."""
    yield f"internet-gateways/{_new(world, 'internet-gateways')}"
    for many in ("route-tables", "security-groups"):
        yield f"{many}/{_new(world, many, vpc=vpc_of(world))}"


def _new(world: World, many: str, **body: str) -> str:
    """Create something of this list and return its id."""
    made = world.pusher.call("POST", f"/v1/{many}", {"name": f"asked-{uuid4()}", **body})
    (record,) = made.values()
    return str(record["id"])


def suppression_of(world: World) -> str:
    """Return the id of the only suppression, which is made when it is asked for first."""
    suppressions = world.pusher.call("GET", "/v1/suppressions")["suppressions"]
    if not suppressions:
        body = {"address": "nobody@example.com", "description": "Asked us not to write."}
        return str(world.pusher.call("POST", "/v1/suppressions", body)["suppression"]["id"])
    return str(suppressions[0]["id"])


def balancer_of(world: World) -> str:
    """Return the id of the only load balancer, which is made when it is asked for first."""
    balancers = world.pusher.call("GET", "/v1/load-balancers")["load_balancers"]
    if balancers:
        return str(balancers[0]["id"])
    vpc_of(world)
    (subnet, *_) = world.pusher.call("GET", "/v1/subnets")["subnets"]
    certificate = certificate_of(world)
    body = {
        "name": "front",
        "subnet": subnet["id"],
        "listeners": [
            {"port": 443, "protocol": "https", "backend": "web", "certificate": certificate},
            {"port": 5432, "protocol": "tcp", "backend": "db"},
        ],
        "backends": [
            {"name": "web", "protocol": "http"},
            {"name": "db", "protocol": "tcp"},
        ],
    }
    return str(world.pusher.call("POST", "/v1/load-balancers", body)["load_balancer"]["id"])


_RUN: Final[dict[str, RunCluster]] = {}
"""By the URL of the install."""


def cluster_of(world: World) -> RunCluster:
    """Return the cluster that is run, which is made when it is asked for first.

    There is one that is registered, too.
    """
    if world.url not in _RUN:
        body = {
            "name": "legacy",
            "endpoint": {"host": "db.example.com", "username": "u", "password": "not-a-secret"},
            "bucket": bucket_of(world),
            "schedule": {"base_cron": "0 3 * * 0", "verify_cron": "0 6 1 * *"},
        }
        registered = world.pusher.call("POST", "/v1/clusters", body)["cluster"]["id"]
        with closing(sqlite3.connect(world.pusher.data / "metadata.db", timeout=30)) as database:
            _RUN[world.url] = run_cluster(database, registered)
    return _RUN[world.url]


def queue_of(world: World) -> str:
    """Return the id of a queue."""
    name = f"asked-{uuid4()}"
    return str(world.pusher.call("POST", "/v1/queues", {"name": name})["queue"]["id"])


def certificate_of(world: World) -> str:
    """Return the id of a certificate."""
    body = {"name": f"asked-{uuid4()}", **uploaded("www.example.com", system_clock())}
    return str(world.pusher.call("POST", "/v1/certificates/upload", body)["certificate"]["id"])


def bucket_of(world: World) -> str:
    """Return the name of a bucket."""
    name = f"asked-{uuid4()}"
    return str(world.pusher.call("POST", "/v1/buckets", {"name": name})["bucket"]["name"])


def sbom_of(world: World) -> str:
    """Return the digest of the SBOM of the newest image."""
    path = f"/v1/repositories/{world.frontend}/images/{world.index}/referrers"
    found = world.pusher.call("GET", path)["images"]
    return next(str(each["digest"]) for each in found if each["artifact_type"] == SBOM)


class Question(NamedTuple):
    """A form whose answer is a page: a question, something shown once, or a refusal."""

    path: str
    fields: Mapping[str, str]
    status: int = 200


def questions_of(world: World) -> list[Question]:
    """Return the forms that lead to pages which no link leads to."""
    call = world.pusher.call
    base = f"/console/repositories/{world.frontend}"
    picked = {f"pick.{world.index}": "on", f"pick.{world.older}": "on"}
    program = call("POST", "/v1/service-accounts", {"name": f"asked-{uuid4()}", "access_key": {}})
    owner, key = program["service_account"]["id"], program["access_key"]["id"]
    (policy, *_), roles = (call("GET", f"/v1/{path}")[path] for path in ("policies", "roles"))
    (role,) = (each for each in roles if each["name"] == "admin")
    (organization,) = call("GET", "/v1/accounts")["accounts"]
    people = f"/console/people/{organization['organization']['id']}"
    (person, *_) = call("GET", "/v1/users")["users"]
    member = f"{people}/members/{person['id']}"
    return [
        Question(f"{base}/tags/1.1", {"target": "1.2"}),
        Question(f"{base}/images/delete", picked),
        Question(f"{base}/images/delete", {}),
        Question(f"{base}/settings/public", {}),
        Question(f"{base}/settings/private", {}),
        Question(f"{base}/settings/encryption", {"kms_key": "nobodys"}, 404),
        Question(f"/console/settings/keys/{key_of(world)}/delete", {}),
        Question(f"/console/settings/keys/{key_of(world)}/delete", {"confirmed": "yes"}, 400),
        Question(f"/console/services/topics/{topic_of(world)}/delete", {}),
        Question(f"/console/services/queues/{queue_of(world)}/purge", {}),
        Question(f"/console/services/queues/{queue_of(world)}/delete", {}),
        Question(f"/console/services/certificates/{certificate_of(world)}/revoke", {}),
        Question(f"/console/services/certificates/{certificate_of(world)}/delete", {}),
        Question(f"/console/services/certificates/{certificate_of(world)}/export", {}),
        Question("/console/services/certificates/upload", {"certificate_pem": "x"}, 400),
        Question(f"/console/services/buckets/{bucket_of(world)}/delete", {}),
        Question(f"/console/services/load-balancers/{balancer_of(world)}/delete", {}),
        *(
            Question(f"/console/services/clusters/{cluster_of(world).id}/{each}", {})
            for each in ("delete", "reset-password", f"backups/{cluster_of(world).base}/delete")
        ),
        Question(
            f"/console/services/clusters/{cluster_of(world).id}/restore",
            {"target_time": "2026-01-01T00:00:00", "restore_name": "then"},
            409,
        ),
        Question(
            f"/console/services/clusters/{cluster_of(world).id}/schedule", {"base_cron": "x"}, 400
        ),
        Question("/console/services/clusters", {"name": "No Name"}, 400),
        Question(f"/console/services/buckets/{bucket_of(world)}/delete-object", {"key": "a/b"}),
        Question(f"{base}/lifecycle/preview", {"add": "rule"}),
        Question(f"{base}/lifecycle/restore", {"run": str(uuid4())}),
        Question(f"/console/service-accounts/{owner}/keys", {"description": "shown once"}),
        Question(f"/console/service-accounts/{owner}/keys/{key}/delete", {}),
        Question(f"/console/service-accounts/{owner}/delete", {}),
        Question(f"/console/policies/{policy['id']}/delete", {}),
        Question(f"/console/account-roles/{role['id']}/delete", {}),
        Question(f"/console/account-roles/{role['id']}/delete", {"confirmed": "yes"}, 409),
        Question(f"{world.provider}/delete", {}),
        Question(f"{member}/password", {}),
        Question(f"{member}/remove", {}),
        Question(f"{member}/delete", {}),
        Question(f"{people}/users", {"email": f"{uuid4()}@example.org"}),
        Question(f"{people}/users", {"email": "no address"}, 400),
        Question("/console/policies/new", {"name": "x", "document": "{"}, 400),
        Question(
            "/console/my-account/container-passwords",
            {"name": f"asked-{uuid4()}", "role": role["id"]},
        ),
        Question("/console/my-account/container-passwords", {"name": "two words"}, 400),
        Question(f"/console/accounts/{organization['id']}/suspend", {}),
        Question("/console/accounts", {"handle": "No Handle"}, 400),
        Question(f"{base}/tags", {"tag": "two words", "target": "1.1"}, 400),
        Question(f"{base}/images/{world.index}/pins", {"name": "Up", "days": "0"}, 400),
        Question(f"{base}/images/delete", {"confirmed": "yes"}, 400),
        Question(f"/console/repositories/{uuid4()}/delete", {}, 404),
        Question("/console/repositories", {"csrf": "forged"}, 403),
    ]


_SEND: Final = """([path, fields]) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = path;
  const csrf = document.querySelector("input[name=csrf]").value;
  for (const [name, value] of Object.entries({csrf, ...fields})) {
    const input = document.createElement("input");
    input.type = "hidden";
    [input.name, input.value] = [name, value];
    form.append(input);
  }
  document.body.append(form);
  form.submit();
}"""


def send(window: Watched, question: Question) -> None:
    """Send a form as a page of the session would, and wait for the answer."""
    with window.page.expect_navigation() as moved:
        window.page.evaluate(_SEND, [question.path, dict(question.fields)])
    status = moved.value.status
    assert status == question.status, (question, status)
