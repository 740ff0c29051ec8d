"""Ids are UUIDs, which may be written in any case; they are kept and shown in lower case."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.integration.id_places import PLACES, filled, token_of
from tests.integration.served_world import Served
from tests.tenants import allow, document, trust

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def loud(path: str) -> str:
    return UUID.sub(lambda found: found[0].upper(), path)


async def test_an_id_in_a_path_finds_its_thing_in_any_case(served: Served) -> None:
    """For every operation that reads: the same answer, byte for byte."""
    acme, asked, wrong = served.acme, 0, {}
    for place in PLACES:
        operation = place.operation
        path, token = filled(place, acme), token_of(operation, acme)
        if operation.method != "GET" or loud(path) == path:
            continue
        answers = [await served.ask("GET", each, token=token) for each in (path, loud(path))]
        told = {each.text.replace(each.headers["x-request-id"], "") for each in answers}
        if "storage" not in path and len(told) != 1:
            wrong[operation.place] = [each.text for each in answers]
        assert all(each.status_code == 200 for each in answers), (path, told)
        asked += 1
    assert asked > 30
    assert wrong == {}


async def test_changes_and_markers_take_an_id_in_any_case(served: Served) -> None:
    acme = served.acme
    token = acme.program_token
    repository = loud(f"/v1/repositories/{acme.ids['/v1/repositories/{}']}")
    patched = await served.ask("PATCH", repository, {"description": "x"}, token=token)
    assert patched.json()["repository"]["id"] == acme.ids["/v1/repositories/{}"]
    (image,) = (await served.ask("GET", f"{repository}/images", token=token)).json()["images"]
    by_id = f"{repository}/images/{image['id'].upper()}"
    assert (await served.ask("GET", by_id, token=token)).json() == {"image": image}
    referrers = await served.ask("GET", f"{by_id}/referrers", token=token)
    assert referrers.json()["images"] == []
    after = f"{repository}/images?marker={image['id'].upper()}"
    assert (await served.ask("GET", after, token=token)).json()["images"] == []

    # An opaque marker is of the list, however its path is written.
    first = (await served.ask("GET", "/v1/policies?limit=1", token=token)).json()
    assert first["meta"]["has_more"]
    keys = f"/v1/service-accounts/{acme.ids['/v1/service-accounts/{}']}/access-keys"
    await served.make(keys, {}, token=token)
    marker = (await served.ask("GET", f"{keys}?limit=1", token=token)).json()["meta"]["marker"]
    rest = await served.ask("GET", f"{loud(keys)}?limit=1&marker={marker}", token=token)
    assert len(rest.json()["access_keys"]) == 1
    pin = f"{by_id}/pins/loud"
    assert (await served.ask("PUT", pin, {}, token=token)).status_code == 201
    assert (await served.ask("DELETE", pin, token=token)).status_code == 204


async def test_bodies_and_names_take_an_id_in_any_case(served: Served) -> None:
    """References by id, and account ids inside of CRNs; what is stored is in lower case."""
    acme, ids = served.acme, served.acme.ids
    token, account = acme.program_token, acme.account_id
    role, member = ids["/v1/roles/{}"], ids["/v1/users/{}"]
    person = f"crn:iam::{acme.person.organization_id}:user/{acme.person.id}"
    attachments = f"/v1/policies/{ids['/v1/policies/{}']}/attachments"
    await served.make(attachments, {"role": role.upper()}, token=token)
    assignments = f"/v1/roles/{role}/assignments"
    made = await served.make(assignments, {"user": loud(person)}, token=token)
    assert made["user"]["id"] == acme.person.id
    again = await served.ask("POST", assignments, {"user": member.upper()}, token=token)
    assert again.status_code == 409  # it has the role already
    for named in (role.upper(), f"crn:iam::{account.upper()}:role/role"):
        assumed = await served.ask("POST", "/v1/assume-role", {"role": named}, token=token)
        assert assumed.json()["role_id"] == role
    new = {"handle": "new", "organization": acme.organization_id.upper()}
    founded = await served.make("/v1/accounts", new, token=acme.person_token)
    assert founded["organization"]["id"] == acme.organization_id

    await served.make("/v1/topics", {"name": "Builds"}, token=token)
    topic = f"crn:notifications:local:{account.upper()}:topic/Builds"
    asked = {"topic": topic, "event_types": ["registry.tag.*"]}
    rule = await served.make("/v1/event-rules", asked, token=token)
    assert rule["topic"]["crn"] == topic.replace(account.upper(), account)
    assert rule["topic"]["name"] == "Builds"

    resource = f"crn:registry:local:{account.upper()}:repository/*"
    policy = {"name": "loud", "document": document(allow("registry:*", on=resource))}
    stored = await served.make("/v1/policies", policy, token=token)
    assert stored["document"]["statements"][0]["resources"] == [resource.lower()]
    trusting = {"name": "loud", "trust_policy": trust(account.upper(), loud(person))}
    trusted = await served.make("/v1/roles", trusting, token=token)
    kept = trusted["trust_policy"]["statements"][0]["principals"]
    assert kept == [account, person]
    pullers = {"uncounted_pullers": [f"crn:iam::{account.upper()}:role/Scan*"]}
    changed = await served.ask("PATCH", "/v1/registry-settings", pullers, token=token)
    told = changed.json()["registry_settings"]["uncounted_pullers"]
    assert told == [f"crn:iam::{account}:role/Scan*"]


def test_ids_are_described_as_uuids(described: dict[str, Any]) -> None:
    wrong = set()
    for name, schema in described["components"]["schemas"].items():
        for field, shape in schema.get("properties", {}).items():
            is_id = field == "id" or (field.endswith("_id") and field not in OTHER_IDS)
            if is_id and '"format": "uuid"' not in json.dumps(shape):
                wrong.add((name, field))
    for path, methods in described["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                is_id = parameter["in"] == "path" and parameter["name"].endswith("_id")
                if is_id and parameter["schema"].get("format") != "uuid":
                    wrong.add((path, parameter["name"]))
    assert wrong == set()
    meta = described["components"]["schemas"]["PageMeta"]
    assert meta["required"] == ["total", "limit", "has_more"]
    assert meta["properties"]["marker"]["type"] == "string"


OTHER_IDS: Final = {"access_key_id", "client_id", "lease_id"}
"""Names of credentials and programs, and tokens."""
