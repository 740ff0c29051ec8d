"""One install for all operations, with something of every kind in it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.schemas import BaseSchema

from cloudcore.iam import passwords
from tests.fuzz.cases import PRIVILEGED
from tests.fuzz.install import FuzzedInstall, open_fuzzed_install
from tests.fuzz.known import Known
from tests.fuzz.seeds import plant, teach, unlisted
from tests.passwords import CHEAP
from tests.tenants import bearer


class Target(NamedTuple):
    """What is fuzzed: an install, what its document says, and what there is in it."""

    install: FuzzedInstall
    document: dict[str, Any]
    """As it is served; `schema` is made of a copy with fewer keys."""
    schema: BaseSchema
    known: Known


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Target]:
    """Set the install up, and read its document and its lists over HTTP."""
    folder = tmp_path_factory.mktemp("fuzzed")
    cheap = patch.object(passwords, "COST", CHEAP)
    with cheap, open_fuzzed_install(folder, migrated_file) as install:
        plant(install)

        def read(path: str) -> Any:  # noqa: ANN401 - JSON
            for caller in PRIVILEGED:
                headers = bearer(install.bearers[caller])
                answer = install.send(httpx.Request("GET", install.url + path, headers=headers))
                kind = answer.headers["Content-Type"].partition(";")[0]
                if answer.status_code == 200 and kind == "application/json":
                    return answer.json()
            return None

        described = read("/v1/openapi.json")
        fewer = deepcopy(described)
        _leave_out_keys(fewer)
        known = Known(described["paths"], read, unlisted(install))
        teach(install, known)
        config = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})
        schema = schemathesis.openapi.from_dict(fewer, config=config)
        yield Target(install, described, schema, known)
        install.check_rewound()


def _leave_out_keys(described: dict[str, Any]) -> None:
    """Keep the `Idempotency-Key` of one operation of each family.

    One function reads the header for all. That each operation keeps its answer under a key,
    `test_idempotent_operations.py` tests.
    """
    found: set[str] = set()
    for operations in described["paths"].values():
        for operation in operations.values():
            for parameter in list(operation.get("parameters", ())):
                if parameter["name"] == "Idempotency-Key":
                    (family,) = operation["tags"]
                    if family in found:
                        operation["parameters"].remove(parameter)
                    found.add(family)
