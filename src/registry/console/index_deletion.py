"""Deleting an index together with those of its children that nothing else needs.

What other indexes list is asked of the database, for an index that ``/v1`` has shown. Whether an
image can go is ``/v1``'s to say, one by one, when it deletes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from registry.console.messages import Response
from registry.console.of_repository import PATH, api_path, read_repository, unless_refused
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit
from registry.metadata.storage_usage import TreeMember, edges_to, sum_blobs_of, tree_of

MOST: Final = 100
"""How many images one request deletes; for more there is the command."""

TAGGED: Final = "it has a tag"
PINNED: Final = "it is pinned"
LISTED: Final = "another index lists it"
REFERRED: Final = "something is attached to it"


class Need(NamedTuple):
    """An image that another needs."""

    by: str
    id: str
    why: str


class Staying(NamedTuple):
    """An image under the index that does not go with it."""

    image: Mapping[str, Any]
    why: str


class Plan(NamedTuple):
    """What is deleted with an index, and what is not."""

    goes: Sequence[Mapping[str, Any]]
    """Records of ``/v1``, the index first."""
    stays: Sequence[Staying]
    freed_bytes: int
    """Once nothing of it can be restored."""


def reasons_to_stay(
    members: Collection[str], held: Mapping[str, str], needs: Iterable[Need]
) -> dict[str, str]:
    """Return why each of an index's `members` stays; those that go are left out.

    Those `held` stay whatever else goes. What others need stays as long as one of these does,
    be it outside of the index or a member that stays itself.
    """
    staying = dict(held)
    while True:
        found = {
            need.id: need.why
            for need in needs
            if need.id not in staying and (need.by not in members or need.by in staying)
        }
        if not found:
            return staying
        staying |= found


async def read_plan(
    visit: Visit, repository: Mapping[str, Any], index: Mapping[str, Any]
) -> Plan | None:
    """Return what can go with an index that ``/v1`` has shown, and what that frees.

    None for what is no index of this account, has nothing under it or too much for one request,
    or stays itself since another index lists it.
    """
    acting, store = visit.session.acting, visit.house.storage
    is_own = acting is not None and Crn.parse(repository["crn"]).account == acting.account_id
    if acting is None or not is_own or not index["is_index"]:
        return None
    now = store.clock()
    members, edges = await store.database.read(_read_tree, repository["id"], index["id"], now)
    needs = [Need(parent, child, LISTED) for parent, child in edges]
    if not 1 < len(members) <= MOST or any(need.id == index["id"] for need in needs):
        return None
    images, held = {index["id"]: index}, {}
    path = f"/v1/repositories/{repository['id']}/images"
    for member in members:
        if member.id == index["id"]:
            continue
        found = await unless_refused(visit.api.get(f"{path}/{member.id}"))
        if found is None:
            continue  # deleted since
        images[member.id] = found["image"]
        if member.is_held:
            held[member.id] = TAGGED if found["image"]["tags"] else PINNED
        else:
            needs += await _read_attachments(visit, path, member.id)
    staying = reasons_to_stay(images.keys(), held, needs)
    goes = sorted(
        (each for one, each in images.items() if one not in staying),
        key=lambda each: (each is not index, not each["is_index"]),
    )
    ids = [each["id"] for each in goes]
    sums = await store.database.read(sum_blobs_of, acting.account_id, repository["id"], ids, now)
    stays = [Staying(images[one], why) for one, why in staying.items() if one in images]
    return Plan(goes, stays, sums.exclusive_bytes)


def _read_tree(
    tx: Connection, repository_id: str, manifest_id: str, now: int
) -> tuple[Sequence[TreeMember], Sequence[tuple[str, str]]]:
    """Return an index with all that is under it, and which index lists which of these."""
    members = tree_of(tx, repository_id, manifest_id, now)
    return members, edges_to(tx, repository_id, [member.id for member in members])


async def _read_attachments(visit: Visit, path: str, image_id: str) -> list[Need]:
    """Return what needs an image by being about it."""
    found = await visit.api.get(f"{path}/{image_id}/referrers", limit=MOST)
    return [Need(each["id"], image_id, REFERRED) for each in found["images"]]


async def delete_with_children(visit: Visit, parameters: Parameters) -> Response:
    """Delete an index with those images under it that the page has named and nothing needs yet."""
    form = visit.request.form
    named = form.get("digests", "").split()
    images_path = f"{api_path(parameters)}/images"
    repository = await read_repository(visit, parameters)
    index = (await visit.api.get(f"{images_path}/{parameters['digest']}"))["image"]
    plan = await read_plan(visit, repository, index)
    if plan is None or index["digest"] not in named:
        raise Conflict("what is under the index has changed; go back, reload, and look again")
    going = [each["digest"] for each in plan.goes if each["digest"] in named]
    outcome = await visit.api.post(
        f"{images_path}/batch-delete",
        {"digests": going},
        force="true" if "force" in form else None,
    )
    return visit.page(
        "index_deleted.html",
        200 if outcome["deleted"] else 409,
        repository=repository,
        deleted=outcome["deleted"],
        failures=outcome["failures"],
        stays=[each for each in plan.stays if each.image["digest"] in named],
    )


ROUTES: Final = [
    Route("POST", f"{PATH}/images/{{digest}}/delete-with-children", delete_with_children)
]
