"""Every operation of the control plane needs a token and its action: all but one, one, none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.integration.id_places import BODIES, PLACES, UNKNOWN, Place, filled, token_of, told
from tests.integration.keyed_requests import asked
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS, Operation

EVERYTHING: Final = {"effect": "allow", "actions": ["*"], "resources": ["*"]}
LAST: Final = {place.operation.place: place for place in PLACES}
"""Of each operation, the last parameter of its path."""

OF_BOTH: Final = {
    *("GET /v1/accounts", "GET /v1/accounts/{}", "GET /v1/users", "GET /v1/users/{}"),
    *("POST /v1/accounts", "PATCH /v1/accounts/{}"),
}
"""What persons do in their organizations, and programs in their accounts."""
SHARED: Final = {"GET /v1/repositories/{}/images/{}/attachment"}
"""The repository's own policy allows it to everyone."""

OF_TWO_ACTIONS: Final = {"GET /v1/repositories/search"}
"""It also needs the right to the images of all repositories."""
QUERIES: Final = {"GET /v1/repositories/search": "?text=x"}


@dataclass
class Limited:
    """A program of the first tenant, and the one policy that it has."""

    served: Served
    policy: str
    token: str
    bodies: Mapping[str, object] = field(default_factory=lambda: BODIES)

    async def may(self, *statements: dict[str, Any]) -> None:
        """Replace the statements of its policy."""
        document = {"version": "1", "statements": list(statements)}
        answer = await self.served.ask(
            "PATCH", self.policy, {"document": document}, token=self.served.acme.program_token
        )
        assert answer.status_code == 200, answer.text

    async def ask(self, operation: Operation, other: str | None = None) -> Any:  # noqa: ANN401
        """Ask with the tenant's own ids, but for the last one if that is to be another."""
        place = LAST.get(operation.place) or Place(operation, "", -1)
        name = operation.place
        body = None if name in self.served.without_body else self.bodies.get(name, {})
        path = filled(place, self.served.acme, other) + QUERIES.get(name, "")
        return await self.served.ask(operation.method, path, body, token=self.token)


@pytest.fixture
async def limited(served: Served) -> Limited:
    token = await served.token_that_may(EVERYTHING, name="few")
    found = await served.ask("GET", "/v1/policies?name=few", token=served.acme.program_token)
    (policy,) = found.json()["policies"]
    return Limited(served, f"/v1/policies/{policy['id']}", token)


def of_programs(served: Served) -> Iterator[Operation]:
    """Yield the operations that programs may use if they have the action."""
    program = served.acme.program_token
    for operation in OPERATIONS:
        is_named = "{" in operation.path and operation.place not in LAST
        is_asked = operation.is_built and operation.action and not operation.is_public
        if is_asked and not is_named and token_of(operation, served.acme) == program:
            yield operation


async def test_who_shows_no_token_is_refused_by_every_operation(served: Served) -> None:
    """Those that are public apart; also where a right was needed by nobody."""
    wrong, nobody = {}, Limited(served, "", "", await bodies_of(served))
    for operation in OPERATIONS:
        if operation.is_built and not operation.is_public:
            # Quotas are nothing that a tenant made, so `filled` does not know them.
            path = operation.path.replace("/quotas/{name}", "/quotas/queues")
            answer = await nobody.ask(operation._replace(path=path))
            challenge = answer.headers.get("www-authenticate")
            if (answer.status_code, challenge) != (401, "Bearer"):
                wrong[operation.place] = answer.status_code, challenge, answer.text
    assert wrong == {}, sorted(wrong)


async def test_without_its_action_an_operation_is_refused(limited: Limited) -> None:
    wrong = {}
    for operation in of_programs(limited.served):
        deny = {"effect": "deny", "actions": [operation.action], "resources": ["*"]}
        await limited.may(EVERYTHING, deny)
        answer = await limited.ask(operation)
        if (answer.status_code, answer.json()["error"]["code"]) != (403, "ACCESS_DENIED"):
            wrong[operation.place] = answer.text
    assert wrong == {}, sorted(wrong)


async def test_with_its_action_alone_an_operation_is_not_refused(limited: Limited) -> None:
    wrong = {}
    for operation in of_programs(limited.served):
        await limited.may(EVERYTHING | {"actions": [operation.action]})
        answer = await limited.ask(operation, UNKNOWN if operation.place in LAST else None)
        if answer.status_code == 403 and operation.place not in OF_TWO_ACTIONS:
            wrong[operation.place] = answer.text
    assert wrong == {}, sorted(wrong)


async def bodies_of(served: Served) -> Mapping[str, object]:
    """Return what is sent where ``{}`` would be refused before the right to what is in the body."""
    good = {f"POST {path}": each.body for path, each in (await asked(served)).items()}
    good["PUT /v1/encryption-binding"] = {"kms_key": "platform"}
    return {**{name: body for name, body in good.items() if body is not None}, **BODIES}


async def test_a_right_on_another_thing_is_none(limited: Limited) -> None:
    """A statement about one resource does not let its holder touch the next one."""
    limited.bodies = await bodies_of(limited.served)
    await limited.may(EVERYTHING | {"resources": ["crn:*/other"]})
    wrong = {}
    for operation in of_programs(limited.served):
        answer = await limited.ask(operation)
        if answer.status_code != 403 and operation.place not in SHARED:
            wrong[operation.place] = answer.text
    assert wrong == {}, sorted(wrong)


async def test_what_is_of_programs_is_not_of_persons_nor_the_reverse(served: Served) -> None:
    """Whatever they own, and may do where they may: a person acts in an account by a role."""
    program, person = served.acme.program_token, served.acme.person_token
    both, bodies = set(), await bodies_of(served)
    for operation in OPERATIONS:
        is_named = "{" in operation.path and operation.place not in LAST
        if operation.is_built and operation.action and not operation.is_public and not is_named:
            other = person if token_of(operation, served.acme) == program else program
            answer = await Limited(served, "", other, bodies).ask(operation)
            if answer.status_code != 403:
                both.add(operation.place)
    assert both == OF_BOTH


async def test_who_may_nothing_is_not_told_what_there_is(limited: Limited) -> None:
    """A thing of the own account is refused in the same bytes as what there is not."""
    await limited.may(EVERYTHING | {"effect": "deny"})
    wrong = {}
    for operation in of_programs(limited.served):
        if operation.place in LAST:
            own, unknown = await limited.ask(operation), await limited.ask(operation, UNKNOWN)
            if own.status_code != 403 or told(own) != told(unknown):
                wrong[operation.place] = own.text, unknown.text
    assert wrong == {}, sorted(wrong)
