"""``entrepot payment-methods`` and ``entrepot invoices``, and what an operator decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cloudcore.clock import uuid7
from tests.integration.cli_world import World, cli_world
from tests.owed_invoices import OCTOBER, owe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("billing")


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    with cli_world(folder) as made:
        yield made


def owing(folder: Path, start: int, status: str = "open", attempts: int = 0) -> str:
    """Put an invoice of a month that begins then into the database; return its id."""
    with closing(sqlite3.connect(folder / "data" / "metadata.db", timeout=20)) as database:
        return owe(database, start, status, attempts)


def test_payment_methods_are_added_changed_and_deleted(world: World) -> None:
    made = world.done("payment-methods", "create", "tok_visa", "--type", "card")
    assert made.text.startswith("Added Visa ending in 4242: ")
    body = ("tok_amex", "--type", "card", "--name", "Travel", "--default")
    travel = world.read("payment-methods", "create", *body)
    head, *_others, visa, amex = world.done("payment-methods", "list").lines
    assert head == "ID TYPE NAME DEFAULT EXPIRES CREATED"
    assert " no " in visa
    assert " yes 12/2040 " in amex
    *_others, first, second = world.done("payment-methods", "list", "--quiet").lines
    assert second == travel["id"]
    changed = world.read("payment-methods", "update", first, "--default", "--name", "Ours")
    assert (changed["is_default"], changed["display_name"]) == (True, "Ours")
    assert "default" in world.told("payment-methods", "delete", first, "--yes")[1]
    assert world.done("payment-methods", "delete", second, "--yes").text == "Deleted Travel\n"
    status, words = world.told("payment-methods", "create", "4242424242424242", "--type", "card")
    assert status != 0
    assert "4242" not in words


def test_invoices_are_listed_shown_and_paid(world: World, folder: Path) -> None:
    owing(folder, OCTOBER)
    head, *lines = world.done("invoices", "list", "--status", "open").lines
    assert head == "NAME TOTAL CURRENCY STATUS DECLINED DUE"
    (line,) = (each for each in lines if each.startswith("2026-10-EUR "))
    assert line.startswith("2026-10-EUR 12.34 EUR open 0 20")
    shown = world.done("invoices", "show", "2026-10-EUR").lines
    assert shown[0].endswith("2026-10-EUR: 12.34 EUR, open")
    assert shown[-1] == "acme registry.storage local 2026-10 617 GiB-month 0.02 12.34"
    if not world.done("payment-methods", "list", "--quiet").lines:
        world.done("payment-methods", "create", "tok_visa", "--type", "card")
    assert world.done("invoices", "pay", "2026-10-EUR").text == "12.34 EUR: paid\n"
    assert world.read("invoices", "show", "2026-10-EUR")["status"] == "paid"
    assert world.done("invoices", "pay", "2026-10-EUR").text == "12.34 EUR: paid\n"


def test_an_operator_decides_about_an_invoice(world: World, folder: Path) -> None:
    """And nobody else; the audit log of the organization has it."""

    def operate(*arguments: str) -> tuple[int, str]:
        ended = world.home.run("invoices", *arguments, "--data", str(folder / "data"))
        return ended.returncode, ended.stdout or ended.stderr

    month = 31 * 86_400_000_000
    void, paid = owing(folder, OCTOBER - month), owing(folder, OCTOBER - 2 * month, "failed", 5)
    again = owing(folder, OCTOBER - 3 * month, "failed", 5)
    assert operate("void", void) == (0, "The invoice of 12.34 EUR is void.\n")
    assert operate("settle", paid) == (0, "The invoice of 12.34 EUR is paid.\n")
    assert operate("retry", again) == (0, "The invoice of 12.34 EUR is open.\n")
    assert operate("void", paid)[0] == 1
    assert operate("void", uuid7())[0] == 3
    assert operate("void", "2026-10-EUR")[0] == 2
    assert world.read("invoices", "show", void)["status"] == "void"
    assert world.read("invoices", "show", paid)["paid_at"] is not None
    with closing(sqlite3.connect(folder / "data" / "metadata.db")) as database:
        events = database.execute(
            "SELECT action FROM audit_events WHERE action LIKE 'billing:%Invoice'"
            " AND principal = '' ORDER BY occurred_at, id"
        ).fetchall()
    assert events == [
        ("billing:VoidInvoice",),
        ("billing:SettleInvoice",),
        ("billing:RetryInvoice",),
    ]
