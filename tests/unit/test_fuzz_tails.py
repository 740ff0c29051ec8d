"""Requests that are generated from the document end their paths in keys, as they should arrive."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudcore.db.base import Database
from cloudcore.web.envelope import ENVELOPE
from cloudcore.web.openapi import document
from cloudcore.web.path_tails import Tails
from cloudcore.web.reference_pages import OWN_PATHS
from tests.control_plane import Options, make_world
from tests.fuzz.cases import KEYS, Cases, on_wire, operations
from tests.fuzz.install import FuzzedInstall
from tests.fuzz.known import Known
from tests.thing_files import Shelf, file_routes

TEMPLATE = "/v1/things/{thing_id}/files/{key}"


def test_keys_arrive_byte_for_byte(tmp_path: Path) -> None:
    options = Options(more=file_routes(Shelf(tmp_path)))
    routes = make_world(cast("Database", None), options).app.routes
    described = document(
        [route for route in routes if route.spec.path not in OWN_PATHS], {}, ENVELOPE
    )
    schema = schemathesis.openapi.from_dict(described)
    (operation,) = [
        each for each in operations(schema) if (each.method, each.path) == ("delete", TEMPLATE)
    ]
    install = cast(
        "FuzzedInstall", type("Install", (), {"url": "http://a", "bearers": {}, "cookie": ""})
    )
    cases = Cases(operation, Known({}, lambda _: None, {}))
    seen = set()

    # The same draws each time: by chance some runs would see too few of the keys.
    @given(st.data())
    @settings(
        deadline=None, derandomize=True, max_examples=50, suppress_health_check=list(HealthCheck)
    )
    def sensible(data: st.DataObject) -> None:
        request = on_wire(data.draw(cases.sensible()).request(install, "no one"))
        found = Tails([TEMPLATE]).find(request.url.raw_path.partition(b"?")[0])
        assert found is not None
        assert found.tail in KEYS
        seen.add(found.tail)

    sensible()
    assert len(seen) > len(KEYS) // 2
