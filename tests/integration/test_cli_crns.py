"""A CRN names the caller's account by its id or by its handle, for every kind of resource."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from cloudcore.resource_names import Crn
from tests.integration.cli_world import World, cli_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.mark.parametrize("noun", ["buckets", "queues", "topics", "keys", "policies", "roles"])
def test_the_account_of_a_crn_is_an_id_or_a_handle(world: World, noun: str) -> None:
    made = world.read(noun, "show", "admin") if noun in ("roles", "policies") else None
    made = made or world.read(noun, "create", "a-name")
    crn = Crn.parse(made["crn"])
    for account in (crn.account, crn.account.upper(), "acme"):
        assert world.read(noun, "show", str(crn._replace(account=account)))["id"] == made["id"]
    one = {"policies": "policy"}.get(noun, noun.removesuffix("s"))
    for account in (str(uuid4()), "acme-2"):
        foreign = str(crn._replace(account=account))
        told = world.told(noun, "show", foreign)
        assert told == (3, f"{foreign!r} is a {one} of another account")


def test_certificates_of_another_account_are_told_apart(world: World) -> None:
    foreign = "crn:acm:local:acme-2:certificate/a-name"
    told = world.told("certificates", "show", foreign)
    assert told == (3, f"{foreign!r} is a certificate of another account")
