"""``entrepot usage`` against a served registry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from cloudcore.clock import system_clock
from cloudcore.metering.usage import HOUR, SkuUse, add
from tests.databases import with_database
from tests.entrepot import ADMIN, PASSWORD, Home
from tests.integration.cli_world import World, cli_world

BEFORE = 30
"""Hours since the use that the commands look for."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        account = made.read("accounts", "list")[0]["id"]
        hour = system_clock() // HOUR - BEFORE
        used = {
            SkuUse(account, "local", "queue.requests", hour): 1500,
            SkuUse(account, "local", "queue.requests", hour + 1): 500,
            SkuUse(account, "local", "registry.pulls", hour): 2000,
        }
        url = f"sqlite:///{made.install.registry.data}/metadata.db"
        with_database(url, lambda database: database.write(add, used))
        yield made


def test_usage_is_a_table_and_a_document(world: World) -> None:
    until = datetime.now(UTC) - timedelta(hours=BEFORE - 3)
    span = ("--from", "72h", "--to", until.isoformat())
    head, *rows = world.done("usage", *span, "--by", "hour").lines
    assert head == "FROM TO SKU QUANTITY"
    assert [row.split(" ", 4)[-1] for row in rows] == [
        "queue.requests 1.5 1000 requests",
        "registry.pulls 2 1000 pulls",
        "queue.requests 0.5 1000 requests",
    ]
    found = world.read("usage", *span, "--sku", "registry.pulls")
    assert [(each["sku"], each["quantity"], each["unit"]) for each in found] == [
        ("registry.pulls", "2", "1000 pulls")
    ]
    assert world.read("usage", "--from", "2020-01-01", "--to", "2020-02-01") == []


def test_an_organization_has_the_use_of_each_account(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    owner = Home(tmp_path_factory.mktemp("owner"))
    given = world.install.one_time_password
    world.sign_in_person(owner, ADMIN, given, PASSWORD, role="admin")
    asked = ("--organization", "main", "--sku", "registry.pulls")
    head, *rows = world.done("usage", *asked, home=owner).lines
    assert head == "FROM TO SKU QUANTITY ACCOUNT"
    assert rows[-1].endswith("registry.pulls 2 1000 pulls acme")
    assert world.told("usage", "--organization", "nobody", home=owner)[0] == 3


def test_what_is_no_selection_is_told(world: World) -> None:
    status, words = world.told("usage", "--sku", "nothing")
    assert (status, words.partition(" (")[0]) == (
        1,
        "INVALID_INPUT: sku: nothing is metered as 'nothing'",
    )
    assert world.told("usage", "--from", "soon")[0] == 2
