"""What the audit log tells over HTTP: pushes, sign-ins, refusals; who may read it, and export."""

from __future__ import annotations

import html
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.audit import routes
from cloudcore.db.base import Connection
from cloudcore.iam.passwords import hash_password
from cloudcore.identity.names import iam_crn, person_crn
from registry.oci.media_types import OCI_MANIFEST
from tests.integration.acting_persons import EMAIL, assume, bearer, set_password
from tests.integration.console_shop import browser_with, console_over
from tests.integration.served_world import Served, Tenant, open_served
from tests.passwords import CHEAP

PATH: Final = "/v1/audit-events"
VERIFIER: Final = "correct-horse-battery-staple_0123456789.~ABC"
PASSWORD: Final = "a long enough password"
OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
AGENT: Final = {"User-Agent": "docker/28.2"}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Return an install shared by this module."""
    folder: Path = tmp_path_factory.mktemp("audit")
    async with open_served(folder / "data") as served:
        yield served


async def found(served: Served, token: str, **query: str | int) -> list[dict[str, Any]]:
    answer = await served.ask("GET", f"{PATH}?{httpx.QueryParams(query)}", token=token)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["events"])


async def events(served: Served, tenant: Tenant, **query: str | int) -> list[dict[str, Any]]:
    """Return the events of an account that match, the newest first."""
    return await found(served, tenant.program_token, **query)


async def events_of(served: Served, answer: httpx.Response) -> list[dict[str, Any]]:
    """Return acme's events of the request that had this answer."""
    request_id = answer.headers["x-request-id"]
    latest = await events(served, served.acme, limit=200)
    return [each for each in latest if each["request_id"] == request_id]


async def of_organization(served: Served, tenant: Tenant, **query: str) -> list[dict[str, Any]]:
    """Return the events of an organization, as its owner sees them."""
    of = {"organization_id": tenant.organization_id, **query}
    return await found(served, tenant.person_token, **of)


async def push(served: Served, token: str, name: str, by: str) -> tuple[httpx.Response, str]:
    """Push a manifest without layers, told apart by an annotation."""
    digest = f"sha256:{sha256(b'{}').hexdigest()}"
    uploads = f"/v2/{name.partition('/manifests')[0]}/blobs/uploads/?digest={digest}"
    blob = await served.ask("POST", uploads, b"{}", token=token)
    assert blob.status_code == 201, blob.text
    config = {"mediaType": "application/x", "digest": digest}
    manifest = {"schemaVersion": 2, "config": config | {"size": 2}, "layers": []}
    body = json.dumps(manifest | {"annotations": {"by": by}, "mediaType": OCI_MANIFEST}).encode()
    kind = {"Content-Type": OCI_MANIFEST, **AGENT}
    answer = await served.ask("PUT", f"/v2/{name}", body, token=token, headers=kind)
    assert answer.status_code == 201, answer.text
    return answer, f"sha256:{sha256(body).hexdigest()}"


async def admin_session(served: Served, **more: str) -> str:
    """Return a token of acme's owner in the role that came with the account."""
    token = served.acme.person_token
    (role,) = (await served.ask("GET", "/v1/users/me/roles", token=token)).json()["roles"]
    return await assume(served, token, role["id"], **more)


async def test_a_push_in_a_role_leaves_one_event_with_its_person(served: Served) -> None:
    """One insert in the transaction of the push; the same push again is no change."""
    acme = served.acme
    session = await admin_session(served, session_name="friday-fix")
    minted = await served.ask("POST", "/v1/authorization-token", token=session)
    token = await bearer(served, minted.json()["password"], "pull", "push", "delete")
    _, first = await push(served, token, "acme/app/manifests/moved", "one")
    served.database.noted.clear()
    answer, second = await push(served, token, "acme/app/manifests/moved", "two")
    inserts = [each for each in served.database.noted if "audit_events" in each.statement.sqlite]
    assert len(inserts) == 1
    await push(served, token, "acme/app/manifests/moved", "two")
    event, earlier, *_ = await events(served, acme, action="registry:PushImage")
    expected = {
        "details": {"digest": second, "tags": {"moved": {"from": first, "to": second}}},
        "resources": [f"crn:registry:local:{acme.account_id}:repository/app"],
        "principal": iam_crn(acme.account_id, "role", "admin"),
        "source": {
            "crn": person_crn(acme.person.organization_id, acme.person.id),
            "name": EMAIL,
            "session_name": "friday-fix",
        },
        "plane": "data",
        "source_ip": "198.51.100.7",
        "user_agent": "docker/28.2",
        "request_id": answer.headers["x-request-id"],
    }
    assert {name: event[name] for name in expected} == expected
    assert earlier["details"]["tags"] == {"moved": {"from": None, "to": first}}
    one = await served.ask("GET", f"{PATH}/{event['id']}", token=acme.program_token)
    assert one.json() == {"event": event}
    gone = await served.ask("DELETE", f"/v2/acme/app/manifests/{second}", token=token)
    assert gone.status_code == 202
    (deleted, *_) = await events(served, acme, action="registry:DeleteImage")
    assert deleted["details"] == {"deleted": {second: ["moved"]}}
    (assumed, *_) = await events(served, acme, action="iam:AssumeRole", who=EMAIL)
    assert assumed["details"] == {"session_name": "friday-fix"}
    (login, *_) = await events(served, acme, action="registry:GetAuthorizationToken", who=EMAIL)
    assert login["principal"] == event["principal"]


async def test_a_repository_that_a_push_creates_is_an_event(served: Served) -> None:
    scope = "repository:globex/fresh:pull,push"
    token = await served.bearer(served.globex, scope)
    await push(served, token, "globex/fresh/manifests/v1", "one")
    resource = f"crn:registry:local:{served.globex.account_id}:repository/fresh"
    actions = [each["action"] for each in await events(served, served.globex, resource=resource)]
    assert actions == ["registry:PushImage", "registry:CreateRepository"]


class _Conflict(Exception):
    """A serialization failure of the database, after which a change runs again."""


@contextmanager
def conflict(
    served: Served, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]]
) -> Iterator[None]:
    """Roll back each first try of a change, and run it again after what others did `meanwhile`."""
    write, events = served.database.write, [meanwhile]

    async def conflicting(change: Callable[..., object], *args: object, **kwargs: object) -> object:
        def lost(tx: Connection) -> None:
            change(tx, *args, **kwargs)
            raise _Conflict

        with suppress(_Conflict):
            await write(lost)
        with monkeypatch.context() as others:
            others.setattr(served.database, "write", write)
            while events:
                await events.pop()()
        return await write(change, *args, **kwargs)

    with monkeypatch.context() as conflicting_writes:
        conflicting_writes.setattr(served.database, "write", conflicting)
        yield


async def test_an_event_tells_of_the_try_that_was_committed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier try found, others may have done since."""
    acme, token = served.acme, await served.bearer(served.acme, "repository:acme/app:pull,push")
    _, digest = await push(served, token, "acme/app/manifests/retried", "retried")

    async def point(tag: str, to: str) -> None:
        path = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}/tags/{tag}"
        answer = await served.ask("PUT", path, {"digest": to}, token=acme.program_token)
        assert answer.is_success, answer.text

    body = (await served.ask("GET", f"/v2/acme/app/manifests/{digest}", token=token)).content
    kind = {"Content-Type": OCI_MANIFEST}
    path = f"/v2/acme/app/manifests/{digest}?tag=first-try&tag=second-try"
    with conflict(served, monkeypatch, lambda: point("first-try", digest)):
        answer = await served.ask("PUT", path, body, token=token, headers=kind)
    assert answer.status_code == 201, answer.text
    (pushed,) = await events_of(served, answer)
    assert pushed["details"]["tags"] == {"second-try": {"from": None, "to": digest}}

    async def delete() -> None:
        path = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}/tags/first-try"
        assert (await served.ask("DELETE", path, token=acme.program_token)).is_success

    batch = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}/images/batch-delete"
    wanted = {"tags": ["first-try", "second-try"]}
    with conflict(served, monkeypatch, delete):
        answer = await served.ask("POST", batch, wanted, token=acme.program_token)
    assert answer.status_code == 200, answer.text
    (deleted,) = await events_of(served, answer)
    assert deleted["details"]["tags"] == {"second-try": {"from": digest, "to": None}}


async def token_of(served: Served, secret: str) -> httpx.Response:
    """Ask for an access token for a key pair."""
    pair = f"client_id={served.acme.access_key_id}&client_secret={secret}"
    return await served.submit("/v1/oauth/token", f"grant_type=client_credentials&{pair}")


async def test_programs_sign_in_and_out_and_wrong_secrets_are_counted(served: Served) -> None:
    acme = served.acme
    answer = await token_of(served, acme.secret)
    crn = iam_crn(acme.account_id, "service-account", "program")
    (event, *_) = await events(served, acme, action="iam:SignIn", outcome="succeeded")
    assert (event["principal"], event["source"]["name"]) == (crn, "program")
    for _ in range(3):
        assert (await token_of(served, "wrong")).status_code == 401
    assert await events(served, acme, action="iam:SignIn", outcome="refused") == []
    await served.auditor.flush()
    (refused,) = await events(served, acme, action="iam:SignIn", outcome="refused")
    assert (refused["times"], refused["principal"]) == (3, crn)
    for _ in range(2):  # the second ends nothing
        await served.submit("/v1/oauth/revoke", f"token={answer.json()['access_token']}")
    told = await events(served, acme, action="iam:SignOut")
    (ended,) = [each for each in told if each["principal"] == crn]
    assert ended["details"] == {"ended": "token"}
    assert answer.json()["access_token"] not in json.dumps(await events(served, acme, limit=200))


async def sign_in(served: Served, password: str) -> httpx.Response:
    """Send the form of the sign-in page."""
    challenge = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
    query = httpx.QueryParams(
        response_type="code",
        client_id="cli",
        redirect_uri=OUT_OF_BAND,
        code_challenge=challenge,
        code_challenge_method="S256",
    )
    page = await served.ask("GET", f"/v1/oauth/authorize?{query}")
    form = re.search(r'name="form" value="([^"]*)"', page.text)
    assert form is not None
    sent = httpx.QueryParams(form=html.unescape(form[1]), email=EMAIL, password=password)
    cookie = page.headers["set-cookie"].partition(";")[0]
    return await served.submit("/v1/oauth/authorize", str(sent), Cookie=cookie)


async def test_people_sign_in_and_out_where_their_organizations_see_it(served: Served) -> None:
    acme = served.acme
    hashed = hash_password(PASSWORD, CHEAP)
    await served.database.write(set_password, acme.person.id, hashed)
    for _ in range(2):
        assert (await sign_in(served, "wrong password")).status_code == 403
    page = await sign_in(served, PASSWORD)
    code = re.search(r'<output id="code">([^<]*)</output>', page.text)
    assert code is not None
    form = httpx.QueryParams(
        grant_type="authorization_code",
        client_id="cli",
        redirect_uri=OUT_OF_BAND,
        code=code[1],
        code_verifier=VERIFIER,
    )
    answer = await served.submit("/v1/oauth/token", str(form))
    assert answer.status_code == 200, answer.text
    await served.submit("/v1/oauth/revoke", f"token={answer.json()['refresh_token']}")
    await served.auditor.flush()
    crn = person_crn(acme.person.organization_id, acme.person.id)
    told = await of_organization(served, acme, who=EMAIL, action="iam:Sign*")
    fields = ("action", "outcome", "times", "principal")
    assert {tuple(each[name] for name in fields) for each in told} == {
        ("iam:SignOut", "succeeded", 1, crn),
        ("iam:SignIn", "succeeded", 1, crn),
        ("iam:SignIn", "refused", 2, crn),
    }
    text = json.dumps(told)
    assert PASSWORD not in text
    assert answer.json()["refresh_token"] not in text
    assert code[1] not in text


async def test_the_end_of_a_login_of_a_role_is_told_once(served: Served) -> None:
    acme, session = served.acme, await admin_session(served)
    made = await served.ask("POST", "/v1/authorization-token", token=session)
    assert made.is_success, made.text
    login = made.json()["password"]
    for _ in range(2):  # the second ends nothing
        await served.submit("/v1/oauth/revoke", f"token={login}")
    told = await events(served, acme, action="iam:SignOut")
    (ended,) = [each for each in told if each["details"]["ended"] == "login"]
    assert ended["principal"] == iam_crn(acme.account_id, "role", "admin")
    assert login not in json.dumps(ended)
    assert (await served.ask("GET", "/v1/roles", token=session)).status_code == 200


async def test_refused_attempts_on_both_planes_are_counted(served: Served) -> None:
    acme = served.acme
    session = await assume(served, await admin_session(served), acme.ids["/v1/roles/{}"])
    for _ in range(3):
        refused = await served.ask("GET", "/v1/repositories", token=session)
        assert refused.status_code == 403
    minted = await served.ask("POST", "/v1/authorization-token", token=session)
    assert minted.status_code == 403  # the role may do nothing
    await served.auditor.flush()
    crn = iam_crn(acme.account_id, "role", "role")
    told = await events(served, acme, who=crn, outcome="refused", action="registry:*")
    assert [(each["action"], each["times"]) for each in told] == [
        ("registry:GetAuthorizationToken", 1),
        ("registry:DescribeRepositories", 3),
    ]
    deny = {"effect": "deny", "actions": ["registry:PushImage"], "resources": ["*"]}
    document = {"version": "1", "statements": [deny]}
    policy = await served.make(
        "/v1/policies", {"name": "no-push", "document": document}, token=served.globex.program_token
    )
    path = f"/v1/policies/{policy['id']}/attachments"
    program = {"service_account": "program"}
    attached = await served.make(path, program, token=served.globex.program_token)
    token = await served.bearer(served.globex, "repository:globex/app:pull,push")
    start = await served.ask("POST", "/v2/globex/app/blobs/uploads/", token=token)
    assert start.status_code == 403, start.text
    await served.ask("DELETE", f"{path}/{attached['id']}", token=served.globex.program_token)
    await served.auditor.flush()
    (event,) = await events(served, served.globex, outcome="refused", action="registry:PushImage")
    assert (event["plane"], event["details"]) == ("data", {"name": "globex/app"})


async def test_a_refused_role_is_found_by_action_and_role(served: Served) -> None:
    acme, globex = served.acme, served.globex
    theirs = iam_crn(globex.account_id, "role", "role")
    own = iam_crn(acme.account_id, "role", "untrusting")
    statement = {"effect": "allow", "principals": [globex.account_id]}
    trust = {"version": "1", "statements": [statement]}
    body = {"name": "untrusting", "trust_policy": trust}
    role_id = (await served.make("/v1/roles", body, token=acme.program_token))["id"]
    absent = "crn:iam::nobody:role/absent"
    idle = await assume(served, await admin_session(served), acme.ids["/v1/roles/{}"])
    program = iam_crn(acme.account_id, "service-account", "program")
    idle_crn = iam_crn(acme.account_id, "role", "role")
    for token, asked, told in (
        (acme.program_token, "untrusting", own),
        (acme.program_token, role_id, own),
        (acme.program_token, own.replace(acme.account_id, acme.handle), own),
        (acme.program_token, theirs, theirs),
        (acme.program_token, absent, absent),
        (idle, "untrusting", own),
        (idle, "none\n", "none?"),
    ):
        refused = await served.ask("POST", "/v1/assume-role", {"role": asked}, token=token)
        assert refused.status_code == 403, refused.text
        await served.auditor.flush()
        who = idle_crn if token == idle else program
        query = {"outcome": "refused", "action": "iam:AssumeRole", "who": who}
        (event,) = await events(served, acme, **query)
        assert event["resources"] == [told]
    assert await events(served, globex, outcome="refused", action="iam:AssumeRole") == []
    # By a person without a role, in those that the person belongs to.
    person = {"role": theirs}
    refused = await served.ask("POST", "/v1/assume-role", person, token=acme.person_token)
    assert refused.status_code == 403
    # What no action is about leaves none.
    refused = await served.ask("GET", "/v1/policy-templates", token=acme.person_token)
    assert refused.status_code == 403
    await served.auditor.flush()
    mine = await of_organization(served, acme, outcome="refused", who=acme.person.email)
    others = [each for each in mine if each["action"] != "iam:SignIn"]  # of other tests
    assert [(each["action"], each["resources"]) for each in others] == [
        ("iam:AssumeRole", [theirs])
    ]
    assert await of_organization(served, globex, who=acme.person.email) == []


async def test_an_account_reads_its_own_events_alone(served: Served) -> None:
    acme, globex = served.acme, served.globex
    own = {each["id"] for each in await events(served, acme, limit=200)}
    foreign = {each["id"] for each in await events(served, globex, limit=200)}
    assert own
    assert own.isdisjoint(foreign)
    crossing = f"{PATH}/{next(iter(foreign))}"
    assert (await served.ask("GET", crossing, token=acme.program_token)).status_code == 404
    for token in (acme.program_token, globex.person_token):
        path = f"{PATH}?organization_id={acme.organization_id}"
        refused = await served.ask("GET", path, token=token)
        assert refused.status_code in (403, 404), refused.text
    member, token = await served.add_person("looks-on")
    await served.join(acme.organization_id, member.email, token, by=acme.person_token)
    path = f"{PATH}?organization_id={acme.organization_id}"
    assert (await served.ask("GET", path, token=token)).status_code == 403
    joined = await of_organization(served, acme, who=member.email)
    assert [each["action"] for each in joined] == ["iam:AcceptInvitation"]


async def test_the_export_has_what_the_pages_have(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_BATCH", 3)
    token = served.acme.program_token
    pages: list[dict[str, Any]] = []
    query: dict[str, str | int] = {"limit": 7, "action": "registry:*"}
    while True:
        answer = await served.ask("GET", f"{PATH}?{httpx.QueryParams(query)}", token=token)
        pages += answer.json()["events"]
        if not answer.json()["meta"]["has_more"]:
            break
        query["marker"] = answer.json()["meta"]["marker"]
    export = await served.ask("GET", f"{PATH}/export?action=registry:*", token=token)
    assert export.headers["content-type"] == "application/jsonl"
    assert [json.loads(line) for line in export.text.splitlines()] == pages
    assert len(pages) > 7  # more than a page


async def test_a_filter_that_means_nothing_is_refused(served: Served) -> None:
    for query in (
        *("action=*:Push", "action=registry:PushImages", "action=registy:*", "resource=crn:*:x"),
        *("since=yesterday", "until=2026-01-01T00:00:00", "outcome=failed"),
        *("organization_id=acme", "marker=x"),
    ):
        answer = await served.ask("GET", f"{PATH}?{query}", token=served.acme.program_token)
        assert answer.status_code == 400, query
        params = answer.json()["error"]["params"]
        assert params["field"] == query.partition("=")[0]
        if "PushImages" in query:
            assert params["reason"] == "unknown_action"
            assert params["suggestions"][0] == "registry:PushImage", "the nearest"


async def test_events_of_a_repository_are_found_by_its_name(served: Served) -> None:
    acme = served.acme
    crn = f"crn:registry:local:{acme.account_id}:repository/app"
    whole = await events(served, acme, resource=crn)
    assert whole
    assert await events(served, acme, resource="app") == whole
    assert await events(served, acme, resource="ap*") == whole
    assert await events(served, acme, resource="none") == []
    assert len(await events(served, acme, resource="*")) > len(whole)
    path = f"{PATH}?organization_id={acme.organization_id}&resource=app"
    answer = await served.ask("GET", path, token=acme.person_token)
    assert answer.json()["error"]["params"]["reason"] == "malformed_crn"


async def test_a_filter_takes_handles_and_ids_and_addresses_in_any_case(served: Served) -> None:
    acme = served.acme
    (*_, first) = await events(served, acme, resource="app")
    for query, crn in (
        ("resource", "crn:registry:local:{}:repository/app"),
        ("resource", "crn:registry:local:{}:repository/a*"),
        ("who", first["principal"].replace(acme.account_id, "{}")),
    ):
        whole = await events(served, acme, **{query: crn.format(acme.account_id)})
        assert whole, crn
        for account in ("acme", acme.account_id.upper()):
            assert await events(served, acme, **{query: crn.format(account)}) == whole
        for account in ("globex", "acm", ""):
            assert await events(served, acme, **{query: crn.format(account)}) == []
    email, path = acme.person.email, f"/v1/organizations/{acme.organization_id}"
    await served.ask("PATCH", path, {"name": "renamed"}, token=acme.person_token)
    whole = await of_organization(served, acme, who=email)
    assert whole
    assert await of_organization(served, acme, who=email.upper()) == whole


async def test_the_console_shows_and_filters_events(served: Served) -> None:
    """A page over ``/v1`` with a GET form; the link to older events keeps the filter."""
    app = console_over(served, served.app)
    async with browser_with(served, app, served.acme.program_token) as browser:
        page = await browser.get("/console/audit?action=registry:*&since=2020-01-01")
        assert page.status_code == 200, page.text
        assert '<td class="wraps" data-label="Action">registry:<wbr>CreateRepository' in page.text
        assert "iam:<wbr>CreateRole" not in page.text
        assert "program (service account)" in page.text
        assert re.search(r'<span class="whole" title="[^"]*">198\.51\.100\.7</span>', page.text)
        none = await browser.get("/console/audit?who=nobody@example.com")
        assert "No event." in none.text
        wrong = await browser.get("/console/audit?action=*:x")
        assert wrong.status_code == 400
        assert 'role="alert"' in wrong.text
