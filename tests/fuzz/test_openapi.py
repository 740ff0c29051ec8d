"""Every operation of ``/v1``, asked everything its description allows, and much it does not.

No answer is a 5xx, none is of a status, type or shape that the document does not have, and what
breaks the schema is refused. ``SOAK=100`` in the environment makes a hundred times as many
requests, other ones each time; ``--hypothesis-seed`` repeats them.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from cloudcore.web.reference_pages import OWN_PATHS
from tests.fuzz.answers import check
from tests.fuzz.cases import Cases, Operation, Sent, on_wire, operations
from tests.fuzz.conftest import Target
from tests.soak import IS_SOAK, time_limit, times
from tests.spec.operations import OPERATIONS

EXAMPLES: Final = 1
"""Requests to one operation that are drawn of each strategy, beside its simplest."""

PLACES: Final = [
    operation.place
    for operation in OPERATIONS
    if operation.is_built and operation.path.startswith("/v1/") and operation.path not in OWN_PATHS
]


@pytest.fixture(scope="module")
def described(target: Target) -> dict[str, Operation]:
    """Return the operations of the document, by the lines of the table that stand for them."""
    return {
        f"{each.method.upper()} {_template(each.path)}": each for each in operations(target.schema)
    }


def _template(path: str) -> str:
    return re.sub(r"{[^}]*}", "{}", path)


def ask(target: Target, sent: Sent) -> tuple[str, ...]:
    """Send a request to the install as it was kept, and check the answer.

    Return the callers, first the one that was not forbidden to send it.
    """
    for caller in sent.callers:
        target.install.rewind()
        request = sent.request(target.install, caller)
        answer = target.install.send(on_wire(request))
        check(sent.case, request, answer)
        if answer.status_code != 403:
            return caller, *(each for each in sent.callers if each != caller)
    return sent.callers


@time_limit(300)
@pytest.mark.parametrize("place", PLACES)
def test_an_operation_answers_as_described(
    target: Target, described: dict[str, Operation], place: str
) -> None:
    cases = Cases(described[place], target.known)
    for sent in cases.corners():
        cases.likely = ask(target, sent)

    for strategy in (cases.sensible(), cases.any()):

        @settings(
            max_examples=1 + times(EXAMPLES),  # the first is the simplest
            derandomize=not IS_SOAK,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def run(sent: Sent) -> None:
            ask(target, sent)

        run()


def test_the_document_has_what_the_table_has(described: dict[str, Operation]) -> None:
    assert set(described) == set(PLACES)


def test_the_document_is_one_of_openapi(target: Target) -> None:
    OPENAPI_31_VALIDATOR.validate(target.document)


def test_every_success_says_what_it_holds(target: Target) -> None:
    """A client made of the document would drop what is not described."""
    empty = {
        f"{each.method.upper()} {each.path}"
        for each in operations(target.schema)
        for status, response in each.definition.raw["responses"].items()
        if status < "300" and status != "204" and "content" not in response
    }
    assert empty == {
        "POST /v1/oauth/revoke",
        "DELETE /v1/load-balancers/{load_balancer_id}",
        "DELETE /v1/clusters/{cluster_id}",
        "DELETE /v1/clusters/{cluster_id}/backups/{backup_id}",
        # What a program wrote, as text.
        "GET /v1/instance-pools/{instance_pool_id}/instances/{instance_id}/logs",
    }


def test_there_is_something_at_every_path(target: Target) -> None:
    """A path that nothing is known at would be asked of what does not exist only."""
    empty = [path for path in target.schema.raw_schema["paths"] if not target.known.places(path)]
    assert empty == [], "tests/fuzz/seeds.py makes nothing for these"
