"""The console in headless Chromium, watched: what its pages load, say and break."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
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
from registry.console.sessions import COOKIE
from tests.certificates import uploaded
from tests.clients.chromium import OPTIONS
from tests.clients.console_world import SBOM, World
from tests.entrepot import ADMIN, PASSWORD
from tests.owed_invoices import owe
from tests.run_clusters import run_cluster
from tests.tools import require_tool

DESKTOP: Final[dict[str, Any]] = {
    "viewport": {"width": 1280, "height": 800},
    "color_scheme": "light",
}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 360, "height": 740},
    "color_scheme": "dark",
    "has_touch": True,
    "is_mobile": True,
}

_PATIENCE: Final = 30_000
"""Milliseconds."""
_LOAD_PATIENCE: Final = 90_000
"""Milliseconds until a page must be loaded: those of the reference are long, and machines busy."""
_OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_SPILLS: Final = """() => [...document.querySelectorAll("td, tbody th, dd, p, h1, h2, li")]
  .filter((each) => each.checkVisibility() && !each.closest(".aloud"))
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent.trim())"""
_LOW_CONTRASTS: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const kept = (known, key, make) => {
    if (!known.has(key)) known.set(key, make());
    return known.get(key);
  };
  const colours = new Map(), grounds = new Map();
  const channels = (colour) => kept(colours, colour, () => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  });
  const over = (front, back) => {
    const part = front[3] / 255;
    return [0, 1, 2].map((n) => front[n] * part + back[n] * (1 - part));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map(
      (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [];
  const ground = (element) => element === null ? [255, 255, 255] : kept(grounds, element, () => {
    const {backgroundColor, opacity} = getComputedStyle(element);
    if (opacity !== "1") low.push(`${element.tagName}.${element.className} opacity ${opacity}`);
    return over(channels(backgroundColor), ground(element.parentElement));
  });
  for (const element of document.querySelectorAll("body *")) {
    const own = element.matches("input, select, textarea")
      || [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("svg") || !element.checkVisibility()) continue;
    const back = ground(element);
    const part = element.placeholder && !element.value ? "::placeholder" : null;
    const front = over(channels(getComputedStyle(element, part).color), back);
    const [low_, high] = [light(front), light(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low_ + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return low;
}"""
"""The elements with text, and the fields, whose contrast with the colour behind is below 4.5:1.

What has an opacity below 1 is returned too, as its contrast is not known. Pictures behind text, and
text over other elements without a background of its own, are not seen; the style has neither."""
_LOOK: Final = f"() => [{_OVERFLOW}, ({_SPILLS})(), ({_LOW_CONTRASTS})()]"


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

    def open_signed_in(self, path: str = "/console") -> None:
        """Open a page as the admin, who has signed in before."""
        cookie = {"name": COOKIE, "value": self.world.cookie}
        place = {"domain": "127.0.0.1", "path": "/console"}
        self.page.context.add_cookies([{**cookie, **place}])  # type: ignore[typeddict-item]
        self.open(path)

    def check(self) -> None:
        """Check that the page fits, can be read, and broke nothing so far."""
        for _ in range(20):  # a window that was just resized may need a frame
            overflow, spills, low_contrasts = self.page.evaluate(_LOOK)
            if overflow <= 0:
                break
            self.page.wait_for_timeout(100)
        assert overflow <= 0, self.page.url
        assert spills == [], self.page.url
        assert low_contrasts == [], self.page.url
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
        browser = playwright.chromium.launch(executable_path=require_tool("chromium"), args=OPTIONS)
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, world: World, **options: Any) -> Iterator[Watched]:  # noqa: ANN401
    """Open a window of a person who has been nowhere yet."""
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(_PATIENCE)
    context.set_default_navigation_timeout(_LOAD_PATIENCE)
    try:
        yield Watched(context.new_page(), world).watch()
    finally:
        context.close()


_HOST: Final = "www.example.com"
_LISTS: Final = (
    *("topics", "queues", "certificates", "buckets", "suppressions", "identities", "vpcs"),
    *("load-balancers", "clusters", "messages", "templates", "payment-methods", "invoices"),
)


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
    call, things = world.pusher.call, things_of(world)
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
        *things.of.values(),
        *(f"/console/services/{each}" for each in _LISTS),
        f"{things.of['invoices']}/print",
        things.cluster,
        things.base,
        things.failed,
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


_BODIES: Final[Mapping[str, Mapping[str, object]]] = {
    "topics": {"name": "told"},
    "queues": {"name": "asked"},
    "buckets": {"name": "asked"},
    "suppressions": {"address": "nobody@example.com", "description": "Asked us not to write."},
    "identities": {"kind": "domain", "value": "shop.example"},
    "templates": {"name": "welcome", "subject": "Welcome, {{ name }}", "html": "<p>Hello</p>"},
    "payment-methods": {"type": "card", "token": "tok_visa"},
    "vpcs": {"name": "shop", "cidr_ipv4": "10.0.0.0/16", "cidr_ipv6": "fd12:3456:789a::/48"},
    "internet-gateways": {"name": "uplink"},
    "route-tables": {"name": "asked", "vpc": "shop"},
    "security-groups": {"name": "asked", "vpc": "shop"},
    "subnets": {
        "name": "front",
        "vpc": "shop",
        "cidr_ipv4": "10.0.0.0/24",
        "cidr_ipv6": "fd12:3456:789a:0::/64",
    },
    "load-balancers": {
        "name": "front",
        "subnet": "front",
        "listeners": [
            {"port": 443, "protocol": "https", "backend": "web", "certificate": "asked"},
            {"port": 5432, "protocol": "tcp", "backend": "db"},
        ],
        "backends": [
            {"name": "web", "protocol": "http"},
            {"name": "db", "protocol": "tcp"},
        ],
    },
}
"""Of what is created, in this order."""


class Things(NamedTuple):
    """Addresses of pages of services in an install, each of one that was made for that."""

    of: Mapping[str, str]
    """By the list: ``topics``."""
    cluster: str
    """Of a cluster that another machine runs; there is one that is registered, too."""
    base: str
    """Of a backup of it that was proved."""
    failed: str


@cache
def _made(url: str) -> list[Things]:
    """Return where the things of the install at an address are kept, once they are made."""
    return []


def things_of(world: World) -> Things:
    """Return what there is, which is made when it is asked for first."""
    kept = _made(world.url)
    if not kept:
        kept.append(_make(world))
    return kept[0]


def _make(world: World) -> Things:
    call, found = world.pusher.call, {}

    def make(many: str, **body: object) -> dict[str, Any]:
        (record,) = call("POST", f"/v1/{many}", body).values()
        return dict(record)

    def address(many: str, key: object) -> str:
        return f"/console/services/{many}/{key}"

    certificate = make("certificates/upload", name="asked", **uploaded(_HOST, system_clock()))
    found["certificates"] = address("certificates", certificate["id"])
    for many, body in _BODIES.items():
        made = make(many, **body)
        found[many] = address(many, made["name" if many == "buckets" else "id"])
    queue = found["queues"].rpartition("/")[2]
    topic = found["topics"].rpartition("/")[2]
    call("POST", f"/v1/topics/{topic}/subscriptions", {"protocol": "queue", "endpoint": queue})
    gateway = found["internet-gateways"].rpartition("/")[2]
    call("POST", f"/v1/internet-gateways/{gateway}/attach", {"vpc": "shop"})
    make("egress-only-gateways", name="out", vpc="shop")
    networks = {"cidr_ipv4": "10.0.1.0/24", "cidr_ipv6": "fd12:3456:789a:1::/64"}
    make("subnets", name="back", vpc="shop", **networks)
    registered = make(
        "clusters",
        name="legacy",
        endpoint={"host": "db.example.com", "username": "u", "password": "not-a-secret"},
        bucket="asked",
        schedule={"base_cron": "0 3 * * 0", "verify_cron": "0 6 1 * *"},
    )
    with closing(sqlite3.connect(world.pusher.data / "metadata.db", timeout=30)) as database:
        found["invoices"] = address("invoices", owe(database))
        run = run_cluster(database, registered["id"])
    cluster = address("clusters", run.id)
    base, failed = (f"{cluster}/backups/{each}" for each in (run.base, run.failed))
    return Things(found, cluster, base, failed)


def key_of(world: World) -> str:
    """Return the id of the newest key."""
    return str(world.pusher.call("GET", "/v1/keys")["keys"][-1]["id"])


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
    call, things = world.pusher.call, things_of(world)
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
        *(
            Question(f"{things.of[many]}/{verb}", {})
            for many, verbs in (
                ("topics", ["delete"]),
                ("queues", ["purge", "delete"]),
                ("certificates", ["revoke", "delete", "export"]),
                ("buckets", ["delete"]),
                ("load-balancers", ["delete"]),
            )
            for verb in verbs
        ),
        Question("/console/services/certificates/upload", {"certificate_pem": "x"}, 400),
        *(Question(f"{things.cluster}/{each}", {}) for each in ("delete", "reset-password")),
        Question(f"{things.base}/delete", {}),
        Question(
            f"{things.cluster}/restore",
            {"target_time": "2026-01-01T00:00:00", "restore_name": "then"},
            409,
        ),
        Question(f"{things.cluster}/schedule", {"base_cron": "x"}, 400),
        Question("/console/services/clusters", {"name": "No Name"}, 400),
        Question(f"{things.of['buckets']}/delete-object", {"key": "a/b"}),
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
