"""Database clusters: their state, connection, schedule and credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cloudcore.databases.clusters import cluster
from registry.console.control_plane import unless_refused
from registry.console.nouns.handlers import api_of, list_page, one_page, path_of
from registry.console.nouns.noun_pages import (
    CREATED,
    DESCRIPTION,
    TAGS,
    Column,
    CustomMethod,
    Input,
    RecordJson,
    name_of,
    read_inputs,
)
from registry.console.nouns.resources import noun_of, slow_deletion
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.services.backup_timeline import backup_line, next_runs, window_of

_STATES: Final = {
    "provisioning": "Is being made",
    "active": "Takes connections",
    "updating": "Is being changed",
    "stopped": "Is stopped",
    "unavailable": "Unavailable",
    "deleting": "Is being deleted",
}
_STATE: Final = Column("State", "status", "mark", _STATES, usual="active")
_TYPE: Final = Column("Runs", "type", words={"managed": "here", "registered": "elsewhere"})
_VERSION: Final = Column("PostgreSQL", "version", "number", none="not known yet")
_BUCKET: Final = Input(
    "bucket", "Bucket for its backups", "code", "Without one, it has no backups.", longest=512
)
_SIZE: Final = (
    Input("memory_mb", "Memory in MiB", "number", default=512, is_more=True),
    Input("cpu_millis", "Thousandths of a processor", "number", default=500, is_more=True),
    Input(
        "disk_mb",
        "Disk in MiB",
        "number",
        "A server that has more is stopped.",
        default=10_240,
        is_more=True,
    ),
)
_NEW: Final = (name_of(63), _BUCKET, DESCRIPTION, *_SIZE, TAGS)
_REGISTERED: Final = (
    Input("register_name", "Name", "code", longest=63, is_required=True),
    Input("host", "Host", "code", "A name or an address.", longest=253, is_required=True),
    Input("username", "Role", "code", "It may read all, and replicate.", 63, is_required=True),
    Input("password", "Password", "secret", "It is sealed.", 1000, is_required=True),
    Input("register_bucket", "Bucket for its backups", "code", longest=512),
    Input("port", "Port", "number", default=5432, is_more=True),
    Input("database", "Database", "code", longest=63, default="postgres", is_more=True),
    Input(
        "ca",
        "Roots of its certificate",
        "pem",
        "In PEM. Without, the connection is encrypted, whoever it is with.",
        is_more=True,
    ),
)
_CREDENTIALS: Final = (
    Input(
        "new_password",
        "New password",
        "secret",
        "It is tried, then sealed.",
        1000,
        is_required=True,
    ),
    Input("new_username", "Role", "code", "Empty: as before.", 63, is_more=True),
    Input("new_ca", "Roots of its certificate", "pem", "Empty: as before.", is_more=True),
)
_ENDPOINT: Final = ("host", "port", "database", "username", "password", "ca")
_SCHEDULE: Final = (
    Input(
        "base_cron",
        "Base backups",
        "code",
        "Minute, hour, day, month and weekday, in UTC: “0 3 * * 0” is each Sunday at 3.",
        100,
    ),
    Input("incremental_cron", "Incremental backups", "code", "“0 3 * * 1-6”, say.", 100),
    Input(
        "verify_cron",
        "Proofs",
        "code",
        "When the newest backup is restored into a server of its own.",
        100,
    ),
    Input(
        "base_count",
        "Base backups that stay",
        "number",
        "Older ones are deleted when the next has succeeded. Empty: all stay.",
    ),
)
_CRONS: Final = ("base_cron", "incremental_cron", "verify_cron")


async def _read_backups(page: PageRequest) -> Sequence[RecordJson] | None:
    """Read the cluster's backups, oldest first; None if the role may not list them."""

    async def read() -> Sequence[RecordJson]:
        return [each async for each in page.api.each(f"{api_of(page, CLUSTER)}/backups", "backups")]

    return await unless_refused(read())


def restore_inputs(record: RecordJson, window: tuple[str, str] | None = None) -> tuple[Input, ...]:
    """Return the form fields of a restore; with a `window`, also a field for the moment.

    `window` has the first and last time to which the cluster can be restored (`window_of`).
    """
    moment = Input(
        "target_time",
        "Moment (UTC)",
        "instant",
        ""
        if window is None
        else "From {} to {}.".format(*(each[:19].replace("T", " ") for each in window)),
        is_required=True,
    )
    sizes = record["size"] or {}
    return (
        Input("restore_name", "Name of the new cluster", "code", longest=63, is_required=True),
        *(() if window is None else (moment,)),
        _BUCKET._replace(field="restore_bucket", label="Bucket for the backups of the new one"),
        *(each._replace(default=sizes.get(each.field, "")) for each in _SIZE),
    )


async def _read_panel(page: PageRequest, record: RecordJson) -> Mapping[str, Any]:
    backups, now = await _read_backups(page), page.now
    window = window_of(record, backups or (), now)
    schedule = {**(record.get("schedule") or {}), **(record.get("retention") or {})}
    restoring = () if window is None else restore_inputs(record, window)
    return {
        "backups": backups and backups[::-1],
        "picture": None if backups is None else backup_line(record, backups, now),
        "next_runs": next_runs(record, now),
        "scheduled": schedule,
        "restoring": restoring,
        "panel_fields": [each.field for each in (*_SCHEDULE, *restoring, *_CREDENTIALS)],
    }


def show_password(
    page: PageRequest, password: str, back: str, words: str, name: str = ""
) -> PageResponse:
    """Return the page that shows an owner's password, only once."""
    return page.show("cluster_password.html", password=password, back=back, words=words, name=name)


def _show_new_password(page: PageRequest, answer: Any, back: str) -> PageResponse:  # noqa: ANN401
    words = "The server has it in some seconds; a stopped one when it is started."
    return show_password(page, answer["password"], back, words)


def _is_managed(record: RecordJson, *states: str) -> bool:
    return record["type"] == "managed" and record["status"] in states


_RUNS: Final = ("provisioning", "active", "updating", "unavailable")
CLUSTER: Final = replace(
    noun_of(
        cluster.CLUSTER,
        "A database cluster is a PostgreSQL server with its databases: one that is run here, or one"
        " that runs elsewhere and is looked at and backed up here.",
    ),
    columns=(_STATE, _TYPE, _VERSION, CREATED),
    details=(
        _TYPE,
        _VERSION,
        Column("Machine", "node"),
        Column("Memory in MiB", "size.memory_mb", "number"),
        Column("Thousandths of a processor", "size.cpu_millis", "number"),
        Column("Disk in MiB", "size.disk_mb", "number"),
        Column("Bucket for its backups", "bucket", "reference"),
        Column("Restored from", "source.cluster_name"),
        Column("Looked at", "checked_at", "time"),
        CREATED,
    ),
    updates=(DESCRIPTION, TAGS),
    can_change=lambda record: record["status"] != "deleting",
    methods=(
        CustomMethod(
            "start",
            "Start",
            "database:StartCluster",
            "The cluster is being started.",
            can=lambda record: _is_managed(record, "stopped"),
        ),
        CustomMethod(
            "stop",
            "Stop",
            "database:StopCluster",
            "The cluster is being stopped. Its data stay.",
            warns="Whoever is connected is cut off, and nobody can connect until it is started"
            " again. Its data stay. Nothing backs it up meanwhile.",
            can=lambda record: _is_managed(record, *_RUNS),
        ),
        CustomMethod(
            "reset-password",
            "Reset the password of",
            "database:ResetClusterPassword",
            "",
            asks="Programs that connect with the old password are refused from then on.",
            label="Reset its owner's password",
            done="Show the new password",
            can=lambda record: _is_managed(record, *_RUNS, "stopped"),
            answered=_show_new_password,
        ),
        slow_deletion(
            cluster.CLUSTER.action("delete"),
            "The cluster is being deleted.",
            "It cannot be had back.",
            Input("cascade", "Delete its backups too", "flag"),
        ),
    ),
    commands=(
        ("Open psql in it", "entrepot clusters psql NAME"),
        ("Its backups", "entrepot backups list NAME"),
    ),
    parts="noun_cluster.html",
    more=_read_panel,
    shows={
        "states": _STATES,
        "made": _NEW,
        "registered": _REGISTERED,
        "scheduling": _SCHEDULE,
        "credentials": _CREDENTIALS,
    },
)


_LIST: Final = list_page(CLUSTER)
_CLUSTER: Final = one_page(CLUSTER)


@_LIST.form(is_nested=True)
async def create_cluster(page: InjectedPage) -> PageResponse:
    """Create a cluster that is run here, and show the password of its owner once."""
    return await _send(page, with_size(read_inputs(_NEW, page.form)))


@_LIST.form(
    "/register", is_nested=True, fields={"name": "register_name", "bucket": "register_bucket"}
)
async def register_cluster(page: InjectedPage) -> PageResponse:
    """Register a cluster that runs elsewhere."""
    body = read_inputs(_REGISTERED, page.form)
    endpoint = {each: body.pop(each) for each in _ENDPOINT if each in body}
    plain = {name.removeprefix("register_"): value for name, value in body.items()}
    return await _send(page, {**plain, "endpoint": endpoint})


async def _send(page: PageRequest, body: Mapping[str, object]) -> PageResponse:
    made = await page.api.post(CLUSTER.api, body, once=page.once)
    record = made["cluster"]
    there = f"{CLUSTER.path}/{record['id']}"
    if "password" not in made:
        return page.go(there, "The cluster was registered, and is being looked at.")
    return show_password(page, made["password"], there, "It is being made.", record["name"])


@_CLUSTER.form(
    "/change-credentials",
    is_nested=True,
    fields={each: f"new_{each}" for each in ("password", "username", "ca")},
    reasons={"endpoint_unreachable": "new_password"},
)
async def change_credentials(page: InjectedPage) -> PageResponse:
    """Change the credentials of a cluster that runs elsewhere."""
    given = read_inputs(_CREDENTIALS, page.form)
    body = {name.removeprefix("new_"): value for name, value in given.items()}
    await page.api.change("POST", f"{api_of(page, CLUSTER)}/change-credentials", body)
    return page.go(path_of(page, CLUSTER), "The server takes them; they are stored.")


@_CLUSTER.form("/schedule", is_nested=True, fields={"schedule": "base_cron"})
async def schedule_backups(page: InjectedPage) -> PageResponse:
    """Set the schedule of backups and proofs, and how many backups are kept."""
    given = read_inputs(_SCHEDULE, page.form)
    count = given.pop("base_count", None)
    body = {
        "schedule": {each: given[each] for each in _CRONS if each in given} or None,
        "retention": None if count is None else {"base_count": count},
    }
    await page.api.change("PATCH", api_of(page, CLUSTER), body)
    return page.go(path_of(page, CLUSTER), "The schedule was saved.")


def with_size(body: dict[str, Any]) -> Mapping[str, object]:
    """Move the size fields of a request body into a nested ``size``."""
    names = [each.field for each in _SIZE]
    size = {each: body.pop(each) for each in names if each in body}
    return {**body, "size": size}
