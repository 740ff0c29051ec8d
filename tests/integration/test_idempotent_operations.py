"""Every operation that takes an ``Idempotency-Key``: the retry has the outcome of the first time.

Driven by the table of operations: one that is added fails here until `asked` knows what to send.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from cloudcore.jobs.runs import end_run, list_runs
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX
from registry.services import collector_runs as collection
from registry.services.lifecycle import runs
from tests.integration.id_places import Place as _Place
from tests.integration.id_places import filled
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS

KEYED: Final = [each for each in OPERATIONS if each.takes_key and each.is_built]
DOCUMENT: Final = {
    "version": "1",
    "statements": [{"effect": "allow", "actions": ["iam:GetRole"], "resources": ["*"]}],
}
RUNS: Final = ("/v1/repositories/{}/lifecycle-policy/runs", "/v1/garbage-collection/runs")


class Asked(NamedTuple):
    """A request that succeeds."""

    token: str
    body: Any = None
    path: str = ""


async def push_index(served: Served) -> str:
    """Push an index without children, and return its digest."""
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
    digest = str(digest_of(body))
    bearer = await served.bearer(served.acme, "repository:acme/app:push")
    path, kind = f"/v2/acme/app/manifests/{digest}", {"Content-Type": OCI_INDEX}
    answer = await served.ask("PUT", path, body, token=bearer, headers=kind)
    assert answer.status_code == 201, answer.text
    return digest


async def asked(served: Served) -> dict[str, Asked]:
    """Return a request for each operation, in an order in which all of them succeed."""
    acme = served.acme
    program, owner = acme.program_token, acme.person_token
    guest, guest_token = await served.add_person("guest")
    invitations = f"/v1/organizations/{acme.organization_id}/invitations"
    invited = await served.make(invitations, {"email": guest.email}, token=owner)
    trust = {"effect": "allow", "principals": [acme.account_id]}
    topic = f"crn:notifications:local:{acme.account_id}:topic/images"
    made = await served.make("/v1/repositories", {"name": "gone"}, token=program)
    gone = f"/v1/repositories/{made['id']}"
    assert (await served.ask("DELETE", gone, token=program)).status_code == 204
    repository = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}"
    tag = acme.ids["/v1/repositories/{}/tags/{}"]
    pin = f"{repository}/images/{acme.digest}/pins/{tag}"
    assert (await served.ask("DELETE", pin, token=program)).status_code == 204
    index = await push_index(served)
    return {
        "/v1/repositories": Asked(program, {"name": "new"}),
        "/v1/repositories/{}/restore": Asked(program, path=f"{gone}/restore"),
        "/v1/repositories/{}/lifecycle-policy/runs": Asked(program),
        "/v1/garbage-collection/runs": Asked(program),
        "/v1/repositories/{}/images/batch-delete": Asked(program, {"tags": [tag]}),
        "/v1/repositories/{}/images/{}/delete-with-children": Asked(
            program, {}, path=f"{repository}/images/{index}/delete-with-children"
        ),
        "/v1/repositories/{}/tags/{}/restore": Asked(program),
        "/v1/repositories/{}/images/restore": Asked(program, {"digests": [acme.digest]}),
        "/v1/event-rules": Asked(program, {"topic": topic, "event_types": ["registry.tag.*"]}),
        "/v1/organizations": Asked(owner, {"name": "New"}),
        "/v1/organizations/{}/invitations": Asked(owner, {"email": "new@example.org"}),
        "/v1/organizations/{}/identity-providers": Asked(
            owner, {"name": "New", "issuer": "https://login.example.net", "client_id": "x"}
        ),
        "/v1/roles/{}/group-assignments": Asked(
            program,
            {
                "identity_provider": acme.ids["/v1/organizations/{}/identity-providers/{}"],
                "group": "operators",
            },
        ),
        "/v1/organizations/{}/accept": Asked(guest_token, {"code": invited["code"]}),
        "/v1/organizations/{}/switch": Asked(guest_token),
        "/v1/accounts": Asked(owner, {"handle": "new", "organization": acme.organization_id}),
        "/v1/users": Asked(
            owner, {"email": "new@example.org", "organization": acme.organization_id}
        ),
        "/v1/users/{}/reset-password": Asked(owner),
        "/v1/service-accounts": Asked(program, {"name": "new"}),
        "/v1/service-accounts/{}/access-keys": Asked(program, {}),
        "/v1/roles": Asked(
            program, {"name": "new", "trust_policy": {"version": "1", "statements": [trust]}}
        ),
        "/v1/roles/{}/assignments": Asked(program, {"user": acme.person.email}),
        "/v1/policies": Asked(program, {"name": "new", "document": DOCUMENT}),
        "/v1/policies/{}/attachments": Asked(program, {"role": "role"}),
    }


async def end_runs(served: Served) -> None:
    """End the runs under way, so that a request without a key would start another."""
    acme = served.acme
    repository = acme.ids["/v1/repositories/{}"]
    for kind, scope_id in ((collection.KIND, acme.account_id), (runs.KIND, repository)):
        for run in await served.database.read(list_runs, kind, scope_id, "", 9):
            await served.database.write(end_run, run.id, served.clock())


async def test_a_retry_has_the_outcome_of_the_first_time(served: Served) -> None:
    """Verbatim, by whomever the operation is for; another body under the key is refused."""

    requests = await asked(served)
    assert {each.place.partition(" ")[2] for each in KEYED} == requests.keys()
    wrong = {}
    for operation in KEYED:
        place = operation.place.partition(" ")[2]
        request = requests[place]
        path = request.path or filled(_Place(operation, place, -1), served.acme)
        await end_runs(served)
        answers = []
        for body in (request.body, request.body, {"": ""}):
            answers.append(
                await served.ask(
                    "POST",
                    path,
                    body,
                    token=request.token,
                    headers={"Idempotency-Key": "again"},
                )
            )
            await end_runs(served)
        first, retry, other = answers
        is_same = (first.status_code, first.content, first.headers.get("location")) == (
            (retry.status_code, retry.content, retry.headers.get("location"))
        )
        if not (
            first.is_success
            and is_same
            and "idempotency-replayed" not in first.headers
            and retry.headers.get("idempotency-replayed") == "true"
            and other.json()["error"]["code"] == "IDEMPOTENCY_KEY_REUSED"
        ):
            wrong[operation.place] = [(each.status_code, each.text) for each in answers]
    assert wrong == {}


async def test_a_run_that_has_ended_is_not_started_anew_by_a_retry(served: Served) -> None:
    requests = await asked(served)
    for place in RUNS:
        path = place.format(served.acme.ids["/v1/repositories/{}"])
        token, key = requests[place].token, {"Idempotency-Key": "once"}
        await end_runs(served)
        started = await served.ask("POST", path, token=token, headers=key)
        await end_runs(served)
        retried = await served.ask("POST", path, token=token, headers=key)
        assert retried.json() == started.json()
        assert started.headers["location"] == f"{path}/{started.json()['run']['id']}"
        listed = (await served.ask("GET", path, token=token)).json()
        assert [run["status"] for run in listed["runs"]] == ["succeeded"] * 2


async def test_who_has_left_the_organization_is_told_no_outcome(served: Served) -> None:
    """A replay asks the organization anew whether the caller may."""

    acme = served.acme
    organization = f"/v1/organizations/{acme.organization_id}"
    other, token = await served.add_person("other-owner")
    await served.join(acme.organization_id, other.email, token, by=acme.person_token, role="owner")
    body = {"handle": "new", "organization": acme.organization_id}
    key = {"Idempotency-Key": "k"}
    made = await served.ask("POST", "/v1/accounts", body, token=token, headers=key)
    assert made.status_code == 201, made.text
    member = f"{organization}/members/{other.id}"
    removed = await served.ask("DELETE", member, token=acme.person_token)
    assert removed.status_code == 204, removed.text
    refused = await served.ask("POST", "/v1/accounts", body, token=token, headers=key)
    assert refused.status_code == 404, refused.text
