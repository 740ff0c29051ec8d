"""The backups of a database cluster: create, verify, restore and delete them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import post

from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, refusal_of
from registry.console.nouns.handlers import api_of, one_page, path_of, read_one, record_crn
from registry.console.nouns.noun_pages import Input, RecordJson, read_inputs
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.services.clusters import (
    CLUSTER,
    restore_inputs,
    show_password,
    with_size,
)

_ONE: Final = f"{CLUSTER.path_of_one}/backups/{{backup:str}}"
_ONE_API: Final = f"{CLUSTER.api}/{{cluster}}/backups/{{backup}}"
_RESTORING: Final = {"name": "restore_name", "bucket": "restore_bucket"}
"""Maps fields on ``/v1`` to fields of the form for a new cluster."""
_MOMENT: Final = Input("target_time", "Moment", "instant", is_required=True)
_STATES: Final = {
    "pending": "Waits for its turn",
    "running": "Is being made",
    "succeeded": "Whole",
    "failed": "Failed",
    "deleting": "Is being deleted",
}
_PROOFS: Final = {
    "never": "Never restored: nobody knows that it can be",
    "pending": "A proof waits for its turn",
    "running": "Is being restored as a proof",
    "succeeded": "Was restored",
    "failed": "Could not be restored",
}
_WAYS: Final = {
    "checksums": "each page has the right checksum",
    "rows": "each row could be read; the server that was backed up has no checksums of pages",
}
"""How a proof was made."""
_CLUSTER: Final = one_page(CLUSTER)


@_CLUSTER.form("/backups")
async def back_up(page: InjectedPage) -> PageResponse:
    """Request a backup now."""
    body = {"kind": page.form.get("kind", "")}
    await page.api.post(f"{api_of(page, CLUSTER)}/backups", body, once=page.once)
    return page.go(path_of(page, CLUSTER), "It is backed up after those that wait already.")


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    record = await read_one(page, CLUSTER)
    crn = record_crn(page, CLUSTER, record)
    page.want_rights_on(crn)
    return page.show(
        "backup.html",
        crn=crn,
        refusal=refusal,
        restoring=restore_inputs(record),
        proofs=_PROOFS,
        ways=_WAYS,
        **await _read(page, record),
    )


async def _read(page: PageRequest, record: RecordJson) -> Mapping[str, Any]:
    """Return the template values of a backup: its record, and the incremental backups that need it.

    The incremental backups are empty if the role may not list backups.
    """
    backup = (await page.api.get(page.fill(_ONE_API)))["backup"]
    needing = []
    if backup["kind"] == "base":
        listed = page.api.get(f"{api_of(page, CLUSTER)}/backups", kind="incremental", limit=200)
        found = await unless_refused(listed)
        needing = (
            [each for each in found["backups"] if each["base_id"] == backup["id"]] if found else []
        )
    return {
        "noun": CLUSTER,
        "record": record,
        "backup": backup,
        "needing": needing,
        "states": _STATES,
        "above": path_of(page, CLUSTER),
        "base": page.fill(_ONE),
    }


_BACKUP: Final = FormPage(_ONE, _show)
show_backup = _BACKUP.get()


@_BACKUP.form("/verify")
async def verify_backup(page: InjectedPage) -> PageResponse:
    """Verify a backup by restoring it into a temporary server."""
    await page.api.post(f"{page.fill(_ONE_API)}/verify", once=page.once)
    return page.go(page.fill(_ONE), "It is being proved. Load the page again in a while.")


@_BACKUP.form("/restore", is_nested=True, fields=_RESTORING)
async def restore_backup(page: InjectedPage) -> PageResponse:
    """Restore a backup into a new cluster, and show its owner's password once."""
    record = await read_one(page, CLUSTER)
    return await _restore(page, record, f"{page.fill(_ONE_API)}/restore")


@_CLUSTER.form(
    "/restore", is_nested=True, fields=_RESTORING, reasons={"out_of_window": _MOMENT.field}
)
async def restore_to_moment(page: InjectedPage) -> PageResponse:
    """Restore a cluster as of a moment into a new one, and show its owner's password once."""
    record = await read_one(page, CLUSTER)
    given = read_inputs((_MOMENT,), page.form)
    return await _restore(page, record, f"{api_of(page, CLUSTER)}/restore", given)


@post(f"{_ONE}/delete")
async def delete_backup(page: InjectedPage) -> PageResponse:
    """Ask whether to delete a backup; with ``confirmed`` in the form, delete it.

    With ``cascade`` in the form, backups that need this backup are deleted too.
    """
    record = await read_one(page, CLUSTER)
    wrong = NO_REFUSAL
    if "confirmed" in page.form:
        try:
            await page.api.change(
                "DELETE", page.fill(_ONE_API), cascade="true" if "cascade" in page.form else None
            )
        except Refused as error:
            wrong = refusal_of(error)
        else:
            return page.go(path_of(page, CLUSTER), "The backup is being deleted.")
    await page.require("database:DeleteBackup", record_crn(page, CLUSTER, record))
    return page.show(
        "backup_question.html", wrong.status, refusal=wrong, **await _read(page, record)
    )


async def _restore(
    page: PageRequest, record: RecordJson, path: str, given: Mapping[str, object] | None = None
) -> PageResponse:
    body = read_inputs(restore_inputs(record), page.form)
    plain = {name.removeprefix("restore_"): value for name, value in body.items()}
    asked = {**with_size(plain), **(given or {})}
    if not asked["size"]:
        del asked["size"]
    made = await page.api.post(path, asked, once=page.once)
    new = made["cluster"]
    words = f"It is being restored from {record['name']}."
    return show_password(page, made["password"], f"{CLUSTER.path}/{new['id']}", words, new["name"])
