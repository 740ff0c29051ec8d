"""``entrepot repositories``: the repositories of the account."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing, Misuse
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from cloudcore.commands.records import by_column, printable, time_text
from cloudcore.resource_names import parse_uuid
from registry.cli.client.api import client_of
from registry.cli.client.references import repository_path

_FIELDS: Final = (
    Option("description", 'for persons; "" takes it away', "clearable"),
    Option("tags", "a tag of the repository itself", "tags"),
    Option(
        "tag_mutability", "whether image tags may move (mutable)", choices=("mutable", "immutable")
    ),
    Option(
        "immutable_tag_exclusions",
        "image tags that may move all the same, such as 'latest' or 'dev-*'",
        "texts",
        "immutable-tag-exclusion",
        metavar="PATTERN",
    ),
)


def _question(run: Invocation, found: Record) -> str:
    """Return the question that confirms the deletion of a repository.

    Raise `Misuse` if the repository has images, and ``--force`` was not passed.
    """
    if found["image_count"] and "force" not in run.values:
        raise Misuse(
            run.text("{name} holds images ({image_count}); --force deletes it with them", found)
        )
    return run.text("Delete the repository {name} and the images it holds ({image_count})?", found)


def _restore(run: Invocation) -> None:
    found = _find_deleted(run, run.values["repository"])
    restored = run.client.create(f"{run.path}/{found['id']}/restore")["repository"]
    run.say(run.text("Restored {name}; images in it: {image_count}", restored), restored)


def _find_deleted(run: Invocation, written: str) -> Record:
    """Return the restorable deleted repository with this name or id.

    Raise `Missing` if there is none; `Misuse` if several had the name.
    """
    rows = run.client.rows(f"{run.path}/deleted", "repositories")
    sought = parse_uuid(written) or written
    found = [row for row in rows if sought in (row["name"], row["id"])]
    if not found:
        raise Missing(
            f"no deleted repository {printable(written)!r} can be restored; "
            "'entrepot repositories deleted' lists those that can"
        )
    if len(found) > 1:
        ids = ", ".join(f"{row['id']} ({time_text(row['deleted_at'])})" for row in found)
        raise Misuse(f"several repositories of that name were deleted; name one by its id: {ids}")
    return found[0]


REPOSITORIES: Final = Noun(
    noun="repositories",
    words="repositories of the account",
    one="repository",
    known_by="its name (app, team/app, HOST/ACCOUNT/app) or id",
    locate=lambda run, written: repository_path(client_of(run), written),
    columns=("name", "image_count", "tag_count", "size_bytes", "visibility", "last_pushed_at"),
    filters=(Option("name_prefix", "only names that begin with TEXT"),),
    create=(
        argument("name", "without the account's handle"),
        Option(
            "kms_key", "seals its blobs: name, id or CRN (the account's default)", metavar="KEY"
        ),
        *_FIELDS,
    ),
    created="Created {name}; push to {uri}:TAG",
    update=_FIELDS,
    delete=Deletion(
        words="delete a repository; it can be restored",
        question=_question,
        said="Deleted {name}; 'entrepot repositories deleted' shows how long it can be restored",
        options=(Option("force", "with the images it holds", "flag"),),
    ),
    commands=(
        Command(
            verb="storage",
            words="show the bytes a repository uses, and those that deleting it would free",
            path="storage",
            method="GET",
            answer="storage",
        ),
        Command(
            verb="deleted",
            words="list deleted repositories that can be restored",
            path="deleted",
            is_on_list=True,
            answer="repositories",
            columns=(
                "name",
                "image_count",
                "size_bytes",
                "deleted_at",
                by_column("deleted_by", "deleted_by_source"),
                Cell("RESTORABLE UNTIL", "restorable_until", "time"),
                "id",
            ),
            row_name="id",
        ),
        Command(
            verb="restore",
            words="restore a deleted repository with its images",
            is_on_list=True,
            options=(argument("repository", "name or id it had"),),
            run=_restore,
        ),
    ),
)

COMMANDS: Final = (REPOSITORIES,)
