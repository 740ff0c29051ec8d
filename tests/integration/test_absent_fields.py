"""What a record has no value for is left out of it, where the specification shows the field.

Null are only `last_pulled_at`, which it shows so, and fields that it does not show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.integration.answer_schemas import answers
from tests.integration.id_places import PLACES, filled, token_of
from tests.integration.served_world import Served
from tests.spec.operations import OPERATIONS

REFERENCE: Final = frozenset({"id", "crn", "name"})
FAULT: Final = frozenset(
    {"code", "severity", "message", "details", "first_at", "last_at", "occurrences"}
)
SHOWN: Final = {
    "ImageAnswer": frozenset(
        {
            *("id", "digest", "media_type", "tags", "artifact_type", "config_digest", "subject"),
            *("manifest_size_bytes", "size_bytes", "is_index", "pushed_at", "last_pulled_at"),
        }
    ),
    "PageMeta": frozenset({"total", "limit", "marker", "has_more"}),
    "RepositoryAnswer": frozenset({"uri", "size_bytes", "tag_mutability"}),
    "Encryption": frozenset({"kms_key"}),
    "EncryptionBinding": frozenset({"kms_key"}),
    "KeyUsageAnswer": frozenset({"kms_key"}),
    "SuppressionRecord": frozenset(
        {
            *("id", "crn", "address", "reason", "description", "source_message", "created_at"),
            *("updated_at", "expires_at"),
        }
    ),
    "MultipartUpload": frozenset(
        {
            *("upload_id", "bucket", "key", "created_at", "content_type", "storage_class"),
            "metadata",
        }
    ),
    "CertificateRecord": frozenset(
        {
            *("id", "crn", "name", "domains", "status", "source", "key_algorithm", "challenges"),
            *("certificate_pem", "chain_pem", "fingerprint", "issued_at", "expires_at", "tags"),
            "faults",
        }
    ),
    "ChallengeRecord": frozenset(
        {
            *("domain", "cname_record_name", "expected_cname", "our_dns", "verified"),
            *("verified_at", "faults"),
        }
    ),
    "Confirmed": frozenset({"subscription_id", "endpoint", "status", "topic_name"}),
}
"""The records that the specification shows (parts 2 and 4), by schema; references and faults have
several schemas."""


def test_no_field_that_the_specification_shows_may_be_null(described: dict[str, Any]) -> None:
    found = dict(answers(described))
    assert SHOWN.keys() <= found.keys()
    nullable = {
        (name, field)
        for name, schema in found.items()
        for field, shape in schema.get("properties", {}).items()
        if may_be_null(shape) and field in shown(name, schema)
    }
    assert nullable == {("ImageAnswer", "last_pulled_at")}


def shown(name: str, schema: dict[str, Any]) -> frozenset[str]:
    """Return the fields of a schema that the specification shows."""
    fields = schema["properties"].keys()
    if {"id", "crn"} <= fields <= REFERENCE:
        return REFERENCE
    return FAULT if fields == FAULT else SHOWN.get(name, frozenset())


def may_be_null(shape: dict[str, Any]) -> bool:
    kinds = [shape, *shape.get("anyOf", ()), *shape.get("oneOf", ())]
    return any("null" in each.get("type", ()) for each in kinds)


async def test_answers_have_what_their_schemas_say(
    served: Served, described: dict[str, Any]
) -> None:
    """So null is only what may be."""
    asked, wrong = 0, {}
    for path, schema in schemas(described):
        place = f"GET {re.sub('{[^}]*}', '{}', path)}"
        operation = next(each for each in OPERATIONS if each.place == place)
        if operation.is_public:
            continue
        named = [each for each in PLACES if each.operation is operation]
        whole = filled(named[0], served.acme) if named else path
        answer = await served.ask("GET", whole, token=token_of(operation, served.acme))
        if answer.status_code != 200:
            continue
        validator = Draft202012Validator({**schema, "components": described["components"]})
        errors = [
            (error.json_path, error.message) for error in validator.iter_errors(answer.json())
        ]
        if errors:
            wrong[place] = errors
        asked += 1
    assert wrong == {}
    assert asked > 80


def schemas(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and schema of each JSON that is read."""
    for path, methods in described["paths"].items():
        content = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        if "application/json" in content:
            yield path, content["application/json"]["schema"]
