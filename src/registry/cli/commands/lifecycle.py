"""``entrepot lifecycle``: the lifecycle policy of a repository, its preview and its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from cloudcore.commands.progress import COLUMNS, WAIT, report_end, start_run
from cloudcore.commands.records import size_text
from registry.cli.client.api import client_of
from registry.cli.commands.repositories import REPOSITORIES

_CONDITIONS: Final = {
    "older_than_days": "older than {} days",
    "not_pulled_for_days": "not pulled for {} days",
    "keep_last": "all but the newest {}",
}
_HELD: Final = (
    "No rule expires what was pushed or restored less than an hour ago, what is pinned, the parts"
    " of an index that stays, or what is attached to an image that stays"
)
"""Which images no rule expires; decided in `registry.services.lifecycle.selection`."""


def _selected_tags(rule: Record) -> list[str]:
    return [*(f"{each}*" for each in rule["tag_prefixes"]), *rule["tag_patterns"]]


def _condition(rule: Record) -> str:
    words = _CONDITIONS
    if rule["action"] == "keep":
        words = {**_CONDITIONS, "keep_last": "the newest {}"}
    given = [text.format(rule[name]) for name, text in words.items() if rule[name] is not None]
    return ", ".join(given) or "all"


_RULES: Final = (
    Cell("PRIORITY", "priority", "number"),
    "action",
    "selector",
    Cell("TAGS", shown=_selected_tags),
    Cell("WHICH", shown=_condition),
    "description",
)
_PREVIEWED: Final = (
    Cell("RULE", "rule", "number"),
    "digest",
    "tags",
    "size_bytes",
    "pushed_at",
    "last_pulled_at",
    Cell("EXPIRES WITH", "expires_with", "digest"),
)


def _show(run: Invocation, policy: Record) -> None:
    run.show_rows(policy["rules"], _RULES)
    run.say(run.text("Runs next at {next_run_at}", policy))


def _rules(run: Invocation) -> dict[str, Any] | None:
    """Return the policy in the file that the command names, or None."""
    document: dict[str, Any] | None = run.values.get("document")
    # The output of 'lifecycle show' has other fields too, which the registry would reject.
    if document and "revision" in document:
        return {"rules": document["rules"]}
    return document


def _set(run: Invocation) -> None:
    policy = run.client.call("PUT", run.path, _rules(run))["lifecycle_policy"]
    advice = f"'entrepot lifecycle preview {run.above.written}' shows what would expire"
    run.say(run.text("Set; it runs at {next_run_at}: ", policy) + advice, policy)


def _preview(run: Invocation) -> None:
    """Show what a run of the policy in the file, or else of the repository's, would delete."""
    pages = client_of(run).pages("POST", f"{run.path}/preview", _rules(run))
    first = next(pages)
    images = [*first["images"], *(image for page in pages for image in page["images"])]
    document = {"images": images, "summary": first["summary"]}
    run.show_rows(images, _PREVIEWED, document=document)
    run.say_lines((_summary(first["summary"]), _HELD))


def _summary(summary: Record) -> str:
    expired = f"{summary['expired']} of {summary['evaluated']} images would expire"
    by_rule, kept = _by_rule(summary["expired_by_rule"]), _by_rule(summary["kept_by_rule"])
    freed = _freed(summary["freed_bytes"])
    return (
        f"{expired}{f' ({by_rule})' if by_rule else ''}, {freed}{f'; kept: {kept}' if kept else ''}"
    )


def _by_rule(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda each: int(each[0]))
    return ", ".join(f"rule {rule}: {count}" for rule, count in ordered)


def _freed(size: int) -> str:
    """Return a clause on the bytes freed once images can no longer be restored."""
    return f"which frees {size_text(size)} once they can no longer be restored"


def _run(run: Invocation) -> None:
    if "dry_run" in run.values:
        _preview(run)
        return
    repository = run.above.written
    run.confirm(f"Delete what expires in {repository}?")
    said = f"Started run {{id}}; 'entrepot lifecycle runs {repository}' shows how far it has come"
    ended = start_run(run, f"{run.path}/runs", said, _progress)
    if ended is None:
        return
    words = f"expired {ended['expired']} of {ended['evaluated']} images"
    report_end(run, ended, f"{words}, {_freed(ended['freed_bytes'])}")
    if not ended["expired"]:
        run.say(_HELD)


def _progress(run: Record) -> str:
    return f"expired {run['expired']} images, looked at {run['evaluated']}"


_FILE: Final = argument("document", "", "document", metavar="FILE")
LIFECYCLE: Final = Noun(
    noun="lifecycle",
    words="which images of a repository expire, and when",
    path="lifecycle-policy",
    parent=REPOSITORIES,
    is_single=True,
    one="lifecycle_policy",
    singular="repository's lifecycle policy",
    shown=_show,
    missing=dict.fromkeys(
        ("show", "preview", "run"),
        "{repository} has no lifecycle policy, so nothing in it expires; "
        "'entrepot lifecycle set {repository} FILE' gives it one",
    ),
    delete=Deletion(
        words="delete a repository's lifecycle policy",
        question="Take the lifecycle policy of {repository} away?",
        said="{repository} has no lifecycle policy any more",
    ),
    commands=(
        Command(
            verb="set",
            words="give a repository a policy, which runs every day",
            options=(
                _FILE._replace(
                    words="the policy, or what 'lifecycle show --output json' printed; - reads the "
                    "standard input"
                ),
            ),
            run=_set,
        ),
        Command(
            verb="preview",
            words="show what would expire now; deletes nothing",
            options=(
                _FILE._replace(
                    words="a policy to try instead of the repository's own; - reads the standard "
                    "input",
                    is_optional=True,
                ),
            ),
            columns=_PREVIEWED,
            run=_preview,
        ),
        Command(
            verb="run",
            words="run a repository's lifecycle policy now",
            options=(
                WAIT._replace(group="how"),
                Option("dry_run", "the same as 'lifecycle preview'", "flag", group="how"),
            ),
            asks=True,
            run=_run,
        ),
        Command(
            verb="runs",
            words="list runs, the newest first",
            path="runs",
            answer="runs",
            columns=(
                *COLUMNS,
                Cell("EVALUATED", "evaluated", "number"),
                Cell("EXPIRED", "expired", "number"),
                "freed_bytes",
                "fault",
            ),
            row_name="id",
        ),
    ),
)

COMMANDS: Final = (LIFECYCLE,)
