"""Every operation of both planes, every id in its path, with the id of somebody else.

Driven by the table of operations and the routes of the data plane: an operation that is added is
asked here by itself, and fails until the place of its parameter is in `Tenant.ids`.
"""

from __future__ import annotations

from typing import Final

from cloudcore.resource_names import parse_uuid
from tests.integration.id_places import (
    BODIES,
    NOTHING,
    PLACES,
    UNKNOWN,
    UNKNOWN_DIGEST,
    Place,
    Told,
    filled,
    requests,
    token_of,
    told,
)
from tests.integration.identity_operations import dump
from tests.integration.served_world import Served, Tenant
from tests.integration.statement_scope import Scopes, all_statements

CROSSING: Final = {
    "cloudcore.identity.rows.accounts._IDS": "accounts that a policy names",
    "registry.metadata.repositories.repository._FIND_VISIBLE": "of any; policies decide who may",
    "cloudcore.identity.rows.organizations._LOCK": "held while a membership is looked for; no read",
    "cloudcore.identity.rows.organizations.INVITATIONS[labelled]": "for the address of the caller",
    "cloudcore.identity.rows.container_passwords.CONTAINER_PASSWORDS[find]": "of the caller",
    "cloudcore.identity.rows.roles._FIND_BY_ID": "a role of another account may be assumed",
}
"""Statements that may be given what belongs to another account."""


DELETED_ONLY: Final = {
    "/v1/organizations/{}/invitations/{}",
    "/v1/roles/{}/assignments/{}",
    "/v1/roles/{}/group-assignments/{}",
    "/v1/policies/{}/attachments/{}",
    "/v1/repositories/{}/images/{}/pins/{}",
}
"""Things that no operation but a deletion names, or none that leaves them as they are."""
SUCCESSES: Final = {("GET /v1/repositories/{}/images/{}/referrers", 1): 200}
"""Parameters that may name what is not there: what refers to it is an empty list."""
DELETED_ALREADY: Final = {"DELETE /v1/templates/{}"}
"""Deletions of what is not there succeed (204): the specification has no 404 for them."""


def body_of(served: Served, place: Place) -> object:
    """Return what an operation is sent."""
    name = place.operation.place
    return None if name in served.without_body else BODIES.get(name, {})


async def test_every_parameter_has_its_thing(served: Served) -> None:
    """The control group: some operation on each of the things finds it."""
    assert len(PLACES) > 45
    unknown = {place.key for place in PLACES} - served.acme.ids.keys()
    assert unknown == set(), "make one in served_world.furnish"
    found = set()
    for place in PLACES:
        if place.operation.method != "DELETE":
            path, token = filled(place, served.acme), token_of(place.operation, served.acme)
            body = body_of(served, place)
            answer = await served.ask(place.operation.method, path, body, token=token)
            if answer.status_code < 300 or answer.status_code == 409:
                found.add(place.key)
    assert {place.key for place in PLACES} - found <= DELETED_ONLY


async def test_foreign_ids_are_as_unknown_ones(served: Served) -> None:
    """404 byte for byte, and no statement sees a foreign id without our account."""
    own, foreign = served.acme, served.globex
    before = await served.database.read(dump)
    served.database.noted.clear()
    wrong = {}
    for place in PLACES:
        operation, token = place.operation, token_of(place.operation, own)
        body = body_of(served, place)
        other = foreign.ids[place.key]
        nothing = UNKNOWN_DIGEST if ":" in other else "nobodys" if "-" not in other else UNKNOWN
        answers = []
        for asked in (other, nothing):
            path = filled(place, own, asked)
            answer = await served.ask(operation.method, path, body, token=token)
            answers.append(as_of_nothing(told(answer), {"asked": asked}))
        nowhere = 204 if operation.place in DELETED_ALREADY else 404
        status = SUCCESSES.get((operation.place, place.number), nowhere)
        if answers[0][0] != status or answers[0] != answers[1]:
            wrong[operation.place, place.number] = answers
        theirs = filled(place, foreign)  # all of the path is somebody else's
        answer = await served.ask(operation.method, theirs, body, token=token)
        if answer.status_code != nowhere:
            wrong[operation.place, place.number] = [told(answer)]
    assert wrong == {}, sorted(wrong)
    assert_no_foreign_id_went_unscoped(served)
    assert await served.database.read(dump) == before


async def test_malformed_ids_are_unknown_ones(served: Served) -> None:
    """A UUID without its last digit, or without its hyphens."""
    wrong = set()
    for place in PLACES:
        own = served.acme.ids[place.key]
        for asked in (own[:-1], own.replace("-", "")) if parse_uuid(own) else ():
            path, token = filled(place, served.acme, asked), token_of(place.operation, served.acme)
            body = body_of(served, place)
            answer = await served.ask(place.operation.method, path, body, token=token)
            if answer.status_code != (400 if place.operation.place in DELETED_ALREADY else 404):
                wrong.add((place.operation.place, place.number, answer.text))
    assert wrong == set()


async def test_foreign_names_are_refused(served: Served) -> None:
    """On /v2: 403 by a token that was refused them, 401 by one that does not speak of them."""
    scopes = [f"repository:{handle}/app:*" for handle in ("acme", "globex")]
    refused = await served.bearer(served.acme, *scopes)
    silent = await served.bearer(served.acme, scopes[0])
    served.database.noted.clear()
    for method, argument in requests():
        path = f"/v2/globex/app/{argument}".format(**things(served.globex))
        for token, status in ((refused, 403), (silent, 401)):
            answer = await served.ask(method, path, token=token)
            assert answer.status_code == status, (method, path)
    assert served.database.noted == []


async def test_foreign_digests_tags_and_uploads_are_as_unknown_ones(served: Served) -> None:
    """In one's own repository; status, bytes and headers are those of the unknown."""
    token = await served.bearer(served.acme, "repository:acme/app:*")
    served.database.noted.clear()
    asked = 0
    for method, argument in requests():
        if "{" not in argument:
            continue
        answers = []
        for each in (things(served.globex), NOTHING):
            path = f"/v2/acme/app/{argument}".format(**each)
            query = f"?digest={UNKNOWN_DIGEST}" if "{upload}" in argument else ""
            answer = await served.ask(method, path + query, token=token)
            answers.append(as_of_nothing(told(answer), each))
        assert answers[0] == answers[1], (method, argument)
        assert answers[0][0] == REFUSALS.get((method, argument), 404), (method, argument)
        asked += 1
    assert asked >= 17
    assert_no_foreign_id_went_unscoped(served)


async def test_nothing_is_mounted_from_a_foreign_repository(served: Served) -> None:
    """202 as for a blob that nobody has, whether the source is named or not."""
    scopes = [f"repository:{handle}/app:*" for handle in ("acme", "globex")]
    token = await served.bearer(served.acme, *scopes)
    for source in ("&from=globex/app", ""):
        for digest in (served.globex.blob, UNKNOWN_DIGEST):
            path = f"/v2/acme/app/blobs/uploads/?mount={digest}{source}"
            answer = await served.ask("POST", path, token=token)
            assert answer.status_code == 202, answer.text


REFUSALS: Final = {
    ("GET", "referrers/{digest}"): 200,  # an empty list, as the specification has it
    ("HEAD", "referrers/{digest}"): 200,
    ("PUT", "manifests/{digest}"): 400,  # one's own manifest, whatever it is called: it has no body
    ("PUT", "manifests/{tag}"): 400,
}


def things(tenant: Tenant) -> dict[str, str]:
    """Return what fills the braces of `PATHS`."""
    return {
        "upload": tenant.upload_id,
        "blob": tenant.blob,
        "digest": tenant.digest,
        "tag": f"of-{tenant.handle}",
    }


def as_of_nothing(told: Told, asked: dict[str, str]) -> Told:
    """Return an answer as if nobody's thing had been asked for: one's own words are no news."""
    status, body, headers = told
    for name, value in asked.items():
        body = body.replace(value, NOTHING[name])
        headers = {k: v.replace(value, NOTHING[name]) for k, v in headers.items()}
    return status, body, {k: v for k, v in headers.items() if k != "content-length"}


def assert_no_foreign_id_went_unscoped(served: Served) -> None:
    """Check all statements that ran: one that saw a foreign id bound our own account with it."""
    foreign, own = served.globex, served.acme
    ids = {*foreign.ids.values(), foreign.account_id, foreign.upload_id, foreign.person.id}
    ids -= {f"of-{foreign.handle}"}
    named = {id(statement): name for name, statement in all_statements().items()}
    ours = {own.account_id, own.handle, own.organization_id, own.person.id, *own.ids.values()}
    wrong = {}
    assert served.database.noted
    for execution in served.database.noted:
        name = named[id(execution.statement)]
        if execution.texts & ids and name not in CROSSING:
            is_scoped = not Scopes(execution.statement).unscoped()
            if not is_scoped or not execution.texts & ours:
                wrong[name] = execution.texts
    assert wrong == {}
