"""The page of the fields that ``--output json`` prints, made from the operations' own schemas.

``python -m tests.cli_fields`` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cloudcore.identity.commands.whoami import Identity
from cloudcore.web.envelope import ENVELOPE
from cloudcore.web.openapi import described_fields, document
from registry.composition.families import FAMILIES
from registry.composition.serve import _routes
from tests import described

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "cli-fields.md"

_BY_HAND: Final[Mapping[str, Mapping[str, str]]] = {
    "repositories": {
        "list, show, create, update, restore": "RepositoryAnswer",
        "deleted": "DeletedRepositoryAnswer",
    },
    "images": {
        "list, show, referrers (each with its own `referrers`)": "ImageAnswer",
        "deleted": "DeletedImageAnswer",
        "delete": "BatchDeletion",
        "restore": "RestoreOutcome",
        "storage": "ImageStorageAnswer",
        "pin, pins": "PinAnswer",
    },
    "tags": {
        "list, show, set": "TagAnswer",
        "history, deleted": "TagChange",
        "restore": "RestoredTag",
    },
    "repository-policies": {"show, set": "RepositoryPolicy"},
    "lifecycle": {
        "show, set": "LifecyclePolicy",
        "preview (`images`)": "PreviewedImage",
        "preview (`summary`)": "PreviewSummary",
        "run, runs": "LifecycleRun",
    },
    "storage": {"usage": "StorageUsageAnswer"},
    "usage": {"usage": "UsageAnswer"},
    "whoami": {"whoami": "Identity"},
    "container-passwords": {"list, show; create adds the password": "NewContainerPasswordRecord"},
    "accounts": {"list, show, create, suspend, resume": "AccountRecord"},
    "service-accounts": {
        "list, show, update": "ServiceAccountRecord",
        "create": "NewServiceAccount",
    },
    "access-keys": {"list, show, update; create and rotate add the secret": "NewAccessKeyRecord"},
    "users": {
        "list, show, suspend, resume; create and reset-password add the password": "NewUserRecord",
    },
    "organizations": {"list, show, create, update, accept": "OrganizationRecord"},
    "members": {"list, update": "MemberRecord"},
    "invitations": {"list; create adds the code": "NewInvitationRecord"},
    "identity-providers": {"list, show, create, update": "ProviderRecord"},
    "roles": {
        "list, show, create, update": "RoleRecord",
        "assign, assignments": "AssignmentRecord",
        "assign-group, groups": "GroupAssignmentRecord",
        "mine": "MyRole",
    },
    "policies": {
        "list, show, create, update": "PolicyRecord",
        "attach, attachments": "AttachmentRecord",
        "templates": "PolicyTemplateRecord",
        "actions": "ActionRecord",
        "simulate; also may": "SimulationRecord",
        "simulate (`results`)": "ActionResult",
        "simulate (`statements`)": "DecidingStatement",
    },
    "gc": {"status": "GarbageCollectionStatus", "run, runs": "GarbageCollectionRun"},
    "settings": {"show, update": "SettingsAnswer"},
    "keys": {
        "list, show, create, update, enable, disable, rotate, delete, cancel-deletion": "KeyRecord",
        "usage": "KeyUsageAnswer",
    },
    "certificates": {
        "list, show, create, update, upload, recheck, revoke": "CertificateRecord",
        "challenges": "ChallengeRecord",
        "export-private-key (`-`)": "ExportedKey",
        "settings": "CertificateSettingsRecord",
    },
    "queues": {
        "list, show, create, update": "QueueRecord",
        "send": "SentMessage",
        "lease": "LeasedMessage",
        "ack (`failures`), extend (`failures`)": "FailedLease",
    },
    "payment-methods": {"list, show, create, update": "PaymentMethodRecord"},
    "invoices": {"list, show (adds the `lines`), pay": "InvoiceRecord"},
    "buckets": {
        "list, show, create, update": "BucketRecord",
        "objects": "ListedObject",
        "put": "ObjectRecord",
        "cors, set-cors": "CorsRules",
    },
    "encryption": {
        "show, set, reset, history": "EncryptionBinding",
        "rewrap, rewraps": "RewrapRun",
    },
    "topics": {"list, show, create, update": "TopicRecord", "publish": "Published"},
    "instances": {"list, show": "InstanceRecord"},
    "backups": {"list, show": "BackupRecord"},
    "subscriptions": {
        "list, show, update; create adds the `signing_secret` of a webhook": "SubscriptionRecord",
        "secret, rotate-secret": "SigningSecret",
        "confirm": "Confirmed",
    },
    "events": {"list, show, create": "EventRuleAnswer"},
    "mirrors": {
        "list, show, create, update": "PullThroughCacheRuleAnswer",
        "test": "UpstreamTest",
    },
    "audit": {"list, export": "AuditEventAnswer"},
    "quotas": {"list, show": "QuotaAnswer"},
}
NOUNS: Final[Mapping[str, Mapping[str, str]]] = {
    **{
        noun: {"list, show, create, update": answer}
        for noun, answer in described.answers().items()
        if noun not in _BY_HAND
    },
    **_BY_HAND,
}
"""The schemas of what the commands of each noun print, by command."""

_HEAD: Final = """\
# Fields of `--output json`

What each command prints with `--output json`, `jsonl` or `yaml`: the records of the API, whole.
A list is a list of such records; with `jsonl` a line for each, written page by page as they come.
Fields may be added; the change log names those that are removed
or renamed. Times are RFC 3339 in UTC, sizes bytes. This page is generated from the declarations of
the operations: `python -m tests.cli_fields`.
"""


def page() -> str:
    """Return the page."""
    schemas = _schemas()
    return "\n".join([_HEAD, *(line for noun in NOUNS for line in _section(noun, schemas))])


def _schemas() -> dict[str, Any]:
    """Return the schemas of all operations by name, and those that only the command has."""
    routes = [each for each in _routes(FAMILIES).all if each.spec.path.startswith("/v1/")]
    own = {"/v1/openapi.json", "/v1/reference"}
    made = document([each for each in routes if each.spec.path not in own], {}, ENVELOPE)
    _, components = msgspec.json.schema_components([Identity])
    for field, words in described_fields([Identity])["Identity"].items():
        components["Identity"]["properties"][field]["description"] = words
    return {**made["components"]["schemas"], **components}


def _section(noun: str, schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{noun}`\n"
    for commands, name in NOUNS[noun].items():
        if commands != noun:
            yield f"{commands}:\n"
        yield "| field | type | meaning |"
        yield "| --- | --- | --- |"
        required = schemas[name].get("required", ())
        for field, schema in schemas[name]["properties"].items():
            words = " ".join(schema.get("description", "").replace("|", "\\|").split())
            kind = f"{_type(schema, schemas)}{'' if field in required else ', or absent'}"
            yield f"| `{field}` | {kind} | {words.replace('``', '`')} |".replace("|  |", "| |")
        yield ""


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    if "anyOf" in schema:
        words = [_type(each, schemas) for each in schema["anyOf"]]
        return " or ".join(sorted(words, key="null".__eq__))
    if "$ref" in schema:
        target = schemas[schema["$ref"].rpartition("/")[2]]
        return f"object: {', '.join(f'`{each}`' for each in target['properties'])}"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}), schemas)}"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case str(name):
            return name
    return "any"


if __name__ == "__main__":
    PAGE.write_text(page())
