"""Lists over real databases: no row twice, none skipped, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

from tests.control_plane import World
from tests.databases import on_both_databases

NAMES = ["a", "a_b", "a%b", "a-b", "b", "c", "zz", "a_", "a%"]


async def make(world: World, *names: str) -> dict[str, str]:
    made = {}
    for name in names:
        answer = await world.ask("POST", "/v1/things", {"name": name})
        made[name] = answer.json()["thing"]["id"]
    return made


async def page(world: World, path: str, **query: str | int | None) -> dict[str, Any]:
    shown = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
    answer = await world.ask("GET", f"{path}?{shown}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"things", "meta"}
    assert set(body["meta"]) - {"marker"} == {"total", "limit", "has_more"}
    assert body["meta"]["has_more"] == ("marker" in body["meta"])
    return body


async def walk(world: World, limit: int, **query: str) -> list[str]:
    names: list[str] = []
    marker = None
    while True:
        body = await page(world, "/v1/things", limit=limit, marker=marker, **query)
        names += [thing["name"] for thing in body["things"]]
        assert body["meta"]["limit"] == limit
        assert body["things"] or marker is None, "a marker that leads nowhere"
        marker = body["meta"].get("marker")
        if marker is None:
            return names
        assert len(body["things"]) == limit


@on_both_databases
async def test_pages_of_any_size_are_the_list_and_prefixes_are_literal(plane: World) -> None:
    await make(plane, *NAMES)
    for limit in (1, 2, 8, 9, 10, 200):
        assert await walk(plane, limit) == sorted(NAMES), limit
    for shown, prefix in [("a_", "a_"), ("a%25", "a%"), ("%25", "%"), ("_", "_"), ("a", "a")]:
        expected = sorted(name for name in NAMES if name.startswith(prefix))
        assert await walk(plane, 1, name_prefix=shown) == expected
        body = await page(plane, "/v1/things", limit=1, name_prefix=shown)
        assert body["meta"]["total"] == len(expected)


@on_both_databases
async def test_rows_that_come_and_go_disturb_nobody_else(plane: World) -> None:
    made = await make(plane, "b", "d", "f", "h")
    first = await page(plane, "/v1/things", limit=2)
    await plane.ask("DELETE", f"/v1/things/{made['d']}")  # the marker's own row
    await plane.ask("DELETE", f"/v1/things/{made['f']}")
    await make(plane, "a", "e")
    rest = await page(plane, "/v1/things", limit=9, marker=first["meta"]["marker"])
    assert [thing["name"] for thing in rest["things"]] == ["e", "h"]
    assert rest["meta"]["total"] == 4


@on_both_databases
async def test_a_documented_marker_is_the_last_rows_id(plane: World) -> None:
    made = await make(plane, "a", "b", "c")
    newest_first = sorted(made.values(), reverse=True)
    first = await page(plane, "/v1/things-by-age", limit=2)
    assert [thing["id"] for thing in first["things"]] == newest_first[:2]
    assert first["meta"]["marker"] == newest_first[1]
    await plane.ask("DELETE", f"/v1/things/{newest_first[1]}")
    rest = await page(plane, "/v1/things-by-age", marker=newest_first[1])
    assert [thing["id"] for thing in rest["things"]] == newest_first[2:]
