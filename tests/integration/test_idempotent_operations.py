"""Every operation that takes an ``Idempotency-Key``: the retry has the outcome of the first time.

Driven by the table of operations: one that is added fails here until `asked` knows what to send.
"""

from __future__ import annotations

from typing import Final

from tests.integration.id_places import Place as _Place
from tests.integration.id_places import filled
from tests.integration.keyed_requests import RUNS, asked, end_runs
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS

KEYED: Final = [each for each in OPERATIONS if each.takes_key and each.is_built]


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
            key = {"Idempotency-Key": "again"}
            answers += [await served.ask("POST", path, body, token=request.token, headers=key)]
            await end_runs(served)
        first, retry, other = answers
        takes_body = operation.place not in served.without_body
        reused = "IDEMPOTENCY_KEY_REUSED" if takes_body else "INVALID_INPUT"
        told = [(each.status_code, each.content, each.headers.get("location")) for each in answers]
        if not (
            first.is_success
            and told[0] == told[1]
            and "idempotency-replayed" not in first.headers
            and retry.headers.get("idempotency-replayed") == "true"
            and other.json()["error"]["code"] == reused
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
