"""What follows from a description: bodies, rules, references, rights, pages and rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import MetaData

from cloudcore.clock import uuid7
from cloudcore.commands.nouns import Option
from cloudcore.email.suppressions import ROWS as SUPPRESSION_ROWS
from cloudcore.email.suppressions import SUPPRESSIONS
from cloudcore.errors import NotFound
from cloudcore.resources.bodies import Bodies, Composite
from cloudcore.resources.commands import noun_of
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import Reference, Resource
from cloudcore.resources.routes import standard_routes
from cloudcore.resources.rows import Rows
from registry.console.nouns.resources import noun_of as console_noun_of
from tests.control_plane import (
    ACCOUNT,
    ALLOW_ALL,
    OTHER_ACCOUNT,
    Options,
    World,
    assert_envelope,
    open_world,
    raw_engine,
)
from tests.databases import on_both_databases
from tests.kms_world import add_account
from tests.shelves import BOOK, BOOK_ROWS, BOOKS, HANDLERS, NOTES, SCHEMA, SHELF, Note, Shelf


@pytest.fixture
async def library(metadata_url: str) -> AsyncIterator[World]:
    """Return a control plane with shelves and books of two accounts."""
    with raw_engine(metadata_url) as engine:
        SCHEMA.create_all(engine)
    handlers = (*HANDLERS, *standard_routes(SUPPRESSIONS))
    async with open_world(metadata_url, Options(more=handlers)) as world:
        for account_id, handle in ((ACCOUNT, "acme"), (OTHER_ACCOUNT, "globex")):
            await world.database.write(add_account, account_id, handle)
        yield world


async def make(world: World, path: str, token: str = "writer", **body: object) -> dict[str, Any]:
    answer = await world.ask("POST", path, body, token=token)
    assert answer.status_code == 201, answer.text
    (made,) = answer.json().values()
    assert answer.headers["location"] == f"{path}/{made['id']}"
    return dict(made)


@on_both_databases
async def test_a_record_is_made_shown_changed_and_deleted(library: World) -> None:
    made = await make(library, "/v1/books", name="dune", pages=412, words=["spice"])
    assert {"id", "created_at", "updated_at", "crn"} <= made.keys()
    shown = {name: made[name] for name in made.keys() - {"id", "created_at", "updated_at", "crn"}}
    assert shown == {
        "name": "dune",
        "pages": 412,
        "kind": "novel",
        "words": ["spice"],
        "is_lent": False,
        "note": None,
    }, "what has no value is left out, unless the field shows null; hidden ones never show"
    assert made["crn"] == f"crn:test:local:{ACCOUNT}:book/dune"
    path = f"/v1/books/{made['id']}"
    found = (await library.ask("GET", path)).json()
    assert found == {"book": made}
    assert found["book"]["is_lent"] is False, "SQLite stores a number"
    lent = {"lent_until": "2040-01-01T02:00:00+02:00", "words": []}
    changed = (await library.ask("PATCH", path, lent)).json()["book"]
    assert (changed["lent_until"], changed["words"]) == ("2040-01-01T00:00:00.000000Z", [])
    assert_envelope(await library.ask("DELETE", path), 409, "CONFLICT")
    cleared = (await library.ask("PATCH", path, {"lent_until": None})).json()["book"]
    assert "lent_until" not in cleared
    assert (await library.ask("PATCH", path, {})).json()["book"] == cleared
    assert (await library.ask("DELETE", path)).status_code == 204
    assert_envelope(await library.ask("GET", path), 404, "NOT_FOUND")
    again = await make(library, "/v1/books", name="dune", pages=1)
    assert again["id"] != made["id"], "a deleted one that keeps its row gives its name free"


async def test_a_reference_is_taken_in_any_form_and_held(library: World) -> None:
    shelf = await make(library, "/v1/shelves", name="attic")
    handle = "crn:test:local:acme:shelf/attic"
    for number, form in enumerate((shelf["name"], shelf["id"], shelf["crn"], handle)):
        book = await make(library, "/v1/books", name=f"dune-{number}", pages=1, shelf=form)
        assert book["shelf"] == {name: shelf[name] for name in ("id", "crn", "name")}
        refused = await library.ask("DELETE", f"/v1/shelves/{shelf['id']}")
        error = assert_envelope(refused, 409, "CONFLICT")
        assert error["params"] == {"reason": "is_referred_to", "book": f"dune-{number}"}
        path = f"/v1/books/{book['id']}"
        assert "shelf" not in (await library.ask("PATCH", path, {"shelf": None})).json()["book"]
    assert (await library.ask("DELETE", f"/v1/shelves/{shelf['id']}")).status_code == 204


async def test_what_a_reference_may_not_mean_is_refused(library: World) -> None:
    await make(library, "/v1/shelves", token="stranger", name="theirs")
    for value, status, reason in (
        ("nothing", 404, None),
        ("Attic!", 400, "malformed"),
        (f"crn:test:local:{OTHER_ACCOUNT}:shelf/theirs", 400, "foreign_account"),
        (f"crn:test:elsewhere:{ACCOUNT}:shelf/attic", 400, "foreign_region"),
    ):
        answer = await library.ask("POST", "/v1/books", {"name": "x", "pages": 1, "shelf": value})
        assert answer.status_code == status, value
        assert answer.json()["error"].get("params", {}).get("reason") == reason
    created = await library.ask("POST", "/v1/books", {"name": "none", "pages": 1, "shelf": ""})
    assert (created.status_code, "shelf" in created.json()["book"]) == (201, False)
    library.tokens.restrict("writer", ALLOW_ALL | {"actions": ["test:CreateBook"]})
    for value in ("nothing", "attic"):  # the right comes before the existence
        answer = await library.ask("POST", "/v1/books", {"name": "x", "pages": 1, "shelf": value})
        assert_envelope(answer, 403, "ACCESS_DENIED")


@on_both_databases
async def test_nothing_refers_to_what_was_deleted_meanwhile(library: World) -> None:
    """Of either kind: one whose row is gone, and one that keeps it."""
    shelf = await make(library, "/v1/shelves", name="attic")
    book = await make(library, "/v1/books", name="dune", pages=1, shelf="attic")
    found = await library.database.read(BOOK_ROWS.get, ACCOUNT, "local", book["id"])
    note = Note(
        id=uuid7(),
        account_id=ACCOUNT,
        region="local",
        created_at=0,
        updated_at=0,
        name="note",
        book=Reference(found.id, found.name),
    )
    assert (await library.ask("DELETE", f"/v1/books/{found.id}")).status_code == 204
    with pytest.raises(NotFound, match="there is no such book"):
        await library.database.write(NOTES.create, note)
    assert (await library.ask("DELETE", f"/v1/shelves/{shelf['id']}")).status_code == 204
    other = await make(library, "/v1/books", name="emma", pages=1)
    change = {"shelf": Reference(shelf["id"], "attic")}
    read = await library.database.read(BOOK_ROWS.get, ACCOUNT, "local", other["id"])
    with pytest.raises(NotFound, match="there is no such shelf"):
        await library.database.write(BOOKS.update, read, change, 1)


async def test_a_reference_is_allowed_by_the_key_whatever_it_is_called(library: World) -> None:
    made = await make(library, "/v1/suppressions", address="Ada@example.com")
    for value in (made["id"], "ada@example.com"):
        asked: list[str] = []
        found = await library.database.read(
            SUPPRESSION_ROWS.resolve, ACCOUNT, "local", "suppression", value, asked.append
        )
        assert (found.id, asked) == (made["id"], [made["crn"]])


@on_both_databases
async def test_a_list_is_filtered_and_paged_and_its_owners_alone(library: World) -> None:
    for name in ("a", "b", "c"):
        await make(library, "/v1/books", name=name, pages=10, kind="novel")
    await make(library, "/v1/books", name="d", pages=10, kind="atlas")
    await make(library, "/v1/books", token="stranger", name="a", pages=10)

    async def names(query: str) -> tuple[list[str], dict[str, Any]]:
        found = (await library.ask("GET", f"/v1/books{query}")).json()
        return [each["name"] for each in found["books"]], found["meta"]

    first, meta = await names("?limit=2")
    assert (first, meta["total"], meta["has_more"]) == (["a", "b"], 4, True)
    assert (await names(f"?limit=2&marker={meta['marker']}"))[0] == ["c", "d"]
    assert (await names("?kind=atlas"))[0] == ["d"]
    assert (await names("?name=b"))[0] == ["b"]
    assert (await library.ask("GET", "/v1/books?kind=comic")).status_code == 400


@on_both_databases
async def test_a_number_without_an_upper_bound_is_stored_whole(library: World) -> None:
    for number in (1 << 31, (1 << 63) - 1):
        made = await make(library, "/v1/books", name=f"of-{number}", pages=number)
        changed = await library.ask("PATCH", f"/v1/books/{made['id']}", {"pages": number - 1})
        assert changed.json()["book"]["pages"] == number - 1


async def test_rules_and_the_quota_are_checked(library: World) -> None:
    atlas: Any = {"name": "world", "pages": 9, "kind": "atlas"}
    error = assert_envelope(await library.ask("POST", "/v1/books", atlas), 400, "INVALID_INPUT")
    assert error["params"] == {"field": "pages", "reason": "out_of_range"}
    made = await make(library, "/v1/books", **atlas | {"pages": 10})
    changed = await library.ask("PATCH", f"/v1/books/{made['id']}", {"pages": 9})
    assert changed.status_code == 400
    assert (await library.ask("POST", "/v1/books", atlas | {"pages": 10})).status_code == 409
    for number in range(3):
        await make(library, "/v1/shelves", name=f"s{number}")
    error = assert_envelope(
        await library.ask("POST", "/v1/shelves", {"name": "s3"}), 403, "QUOTA_EXCEEDED"
    )
    assert error["params"] == {"quota": "shelves", "limit": 3, "used": 3}
    replayed = [
        await library.ask("POST", "/v1/books", {"name": "once", "pages": 1}, key="k")
        for _ in range(2)
    ]
    assert replayed[0].json() == replayed[1].json()


async def test_a_rule_sees_what_several_fields_say_in_any_request(library: World) -> None:
    await make(library, "/v1/books", name="dune", pages=1)
    new = {"name": "good", "book": "dune"}
    error = assert_envelope(
        await library.ask("POST", "/v1/notes", {**new, "place": {"line": 0}}), 400, "INVALID_INPUT"
    )
    made = await make(library, "/v1/notes", **new, place={"line": 7})
    assert made["place"] == {"line": 7}
    changed = await library.ask("PATCH", f"/v1/notes/{made['id']}", {"place": {"line": 0}})
    assert assert_envelope(changed, 400, "INVALID_INPUT")["params"] == error["params"]


def test_a_description_has_actions_events_and_commands() -> None:
    assert BOOK.kind.actions == tuple(
        f"test:{each}"
        for each in ("CreateBook", "DeleteBook", "GetBook", "ListBooks", "UpdateBook")
    )
    assert SHELF.event_types_by_action["test:CreateShelf"] == "test.shelf.created"
    noun = noun_of(BOOK, words="books")
    assert noun.create is not None
    assert noun.update is not None
    assert noun.create[0] == Option("name", "its title", metavar="NAME", is_argument=True)
    assert Option("kind", "kind", choices=("novel", "atlas")) in noun.create
    assert Option("shelf", "have no shelf", "null", "no-shelf") in noun.update
    assert noun.name_filter == "name"


def test_parts_stand_where_they_belong_and_those_that_are_not_in_the_record_are_required() -> None:
    parts = (
        Composite[Shelf, Any](name="room", shown=str, after="name"),
        Composite[Shelf, Any](name="state", shown=str),
    )
    bodies = Bodies(SHELF, parts, suffix="Answer")
    assert bodies.record.__name__ == "ShelfAnswer"
    names = ("id", "crn", "name", "room", "tags", "state", "created_at", "updated_at")
    assert bodies.record.__struct_fields__ == names
    shelf = Shelf(
        id="1", account_id=ACCOUNT, region="local", created_at=0, updated_at=0, name="top"
    )
    assert structs.asdict(bodies.shown(shelf, room="attic", state="full"))["room"] == "attic"
    with pytest.raises(KeyError, match="room"):
        bodies.shown(shelf, state="full")


def test_sentences_have_the_words_of_a_description() -> None:
    pool = Resource(
        record=Shelf, service="test", one="ip_pool", many="ip_pools", words="IP pool", quota=0
    )
    rows = Rows(pool, schema=MetaData())
    bodies, answers = Bodies(pool), Bodies(pool).answers
    noun = noun_of(pool, words="pools")
    assert (noun.singular, noun.plural) == ("IP pool", "IP pools")
    assert noun.delete is not None
    assert [each.__doc__ for each in (bodies.record, answers.one_type, answers.page_type)] == [
        "An IP pool.",
        "An IP pool, wrapped.",
        "A page of IP pools.",
    ]
    assert [each.fn.__doc__ for each in standard_routes(Methods(rows))] == [
        "Create an IP pool. An account has at most 0.",
        "List the account's IP pools, oldest first.",
        "Return an IP pool.",
        "Change an IP pool.",
        "Delete an IP pool.",
    ]
    assert noun.delete.words == "delete an IP pool"
    with pytest.raises(NotFound, match="there is no such IP pool"):
        raise rows.missing()
    assert console_noun_of(pool).heading == "IP pools"
