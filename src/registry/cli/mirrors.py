"""``entrepot mirrors``: upstream registries whose images are cached under a prefix."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Act, Cell, Deletion, Invocation, Noun, Option, argument
from registry.cli.mirror_warm import WARM

_UPSTREAM: Final = Option("upstream_url", "such as https://quay.io", name="upstream", metavar="URL")
_FIELDS: Final = (
    Option(
        "upstream_prefix", "beginning of the names at the upstream that is left out here (none)"
    ),
    Option(
        "credential",
        "ask the upstream as NAME; its secret is typed without an echo, or read from the standard "
        "input",
        "credential",
        "username",
    ),
    Option("credential", "ask the upstream without a credential", "null", "no-credential"),
    Option("tag_ttl_seconds", "serve a tag for N seconds without a look upstream (3600)", "number"),
    Option(
        "negative_ttl_seconds", "remember for N seconds that there is no such image (60)", "number"
    ),
    Option(
        "keep_unpulled_days", "delete images that were not pulled for N days (0: never)", "limit"
    ),
    Option("max_bytes", "above N bytes, delete what was pulled longest ago (0: no limit)", "limit"),
    Option("enabled", "fetch from the upstream; else only what is cached is served", "boolean"),
)


def _test(run: Invocation) -> bool:
    """Ask the upstream whether it answers; return False if it does not."""
    asked = None
    if "image" in run.values:
        repository, _, tag = run.values["image"].partition(":")
        asked = {"repository": repository, "tag": tag or "latest"}
    tested = run.client.call("POST", f"{run.path}/test", asked)
    how = "ok" if tested["ok"] else f"failed at {tested['stage']}"
    status = f", status {tested['http_status']}" if tested["http_status"] else ""
    run.say(f"{how} after {tested['latency_ms']} ms{status}: {tested['message']}", tested)
    return bool(tested["ok"])


MIRRORS: Final = Noun(
    noun="mirrors",
    words="cache the images of other registries under a prefix",
    path="/v1/pull-through-cache-rules",
    many="pull_through_cache_rules",
    name="prefix",
    singular="mirror",
    metavar="MIRROR",
    columns=(
        "prefix",
        Cell("UPSTREAM", "upstream_url"),
        "enabled",
        Cell("HITS", "stats.hits", "number"),
        Cell("MISSES", "stats.misses", "number"),
        "stats.saved_bytes",
        "stats.cached_bytes",
        Cell("FAULTS", shown=lambda rule: [each["code"] for each in rule["faults"]]),
        "last_success_at",
    ),
    create=(
        argument("prefix", "such as docker-hub, or mirrors/quay"),
        _UPSTREAM._replace(is_required=True),
        *_FIELDS,
    ),
    created="Created {prefix}; pull images of {upstream_url} as {uri}/…",
    update=(
        _UPSTREAM._replace(words="another one; give --username or --no-credential too"),
        *_FIELDS,
    ),
    delete=Deletion(
        words="delete a mirror; what it has cached stays",
        question="Delete the rule of {prefix}? Nothing new is cached then.",
        said="Deleted the rule of {prefix}; what it has cached stays",
    ),
    acts=(
        Act(
            verb="test",
            words="ask the upstream whether it answers; exit 1 if it does not",
            options=(
                argument(
                    "image",
                    "ask for this image of the upstream, such as library/alpine:3",
                    metavar="IMAGE[:TAG]",
                    is_optional=True,
                ),
            ),
            run=_test,
        ),
        WARM,
    ),
)

COMMANDS: Final = (MIRRORS,)
