"""An image that skopeo has pushed to a running registry, as it lies on the machine of instances."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cloudcore.account_rows import find_account
from cloudcore.clock import uuid7
from cloudcore.compute.images import IMAGES, ImageRefused, ImageRoot
from cloudcore.iam.policy import SERVICE
from registry.composition.main import Registry
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.busybox_images import busybox_image, write_layout
from tests.clients.containers import Containers
from tests.live_signed_in import SignedIn
from tests.tenants import Statement, allow

Role = dict[str, Any]


async def fetch(signed_in: SignedIn, role: Role | None, reference: str) -> ImageRoot:
    """Fetch an image in another process of the install: this one."""
    settings = Settings(data=signed_in.registry.data, public_url=signed_in.registry.url)
    async with Registry(settings, SERVE).open_planes() as (opening, _):
        images = await opening.get(IMAGES)
        account = await opening.install.database.read(find_account, "acme")
        assert account is not None
        return await images.fetch(account, None if role is None else role["id"], reference)


def make_role(signed_in: SignedIn, *statements: Statement) -> Role:
    """Make a role of acme."""

    def post(path: str, body: object) -> Any:  # noqa: ANN401 - a record
        return next(iter(signed_in.call(signed_in.acme, "POST", path, body).values()))

    def said(*statements: Statement) -> dict[str, object]:
        return {"version": "1", "statements": statements}

    name = f"puller-{uuid7()[-12:]}"
    trust = said({"effect": "allow", "principals": [f"{SERVICE}compute"]})
    role = post("/v1/roles", {"name": name, "trust_policy": trust})
    policy = post("/v1/policies", {"name": name, "document": said(*statements)})
    post(f"/v1/policies/{policy['id']}/attachments", {"role": role["id"]})
    made: Role = role
    return made


@pytest.mark.client("skopeo")
def test_an_image_pushed_by_skopeo_is_unpacked_for_instances(
    signed_in: SignedIn, workspace: Path, repository: str
) -> None:
    write_layout(workspace / "image", busybox_image("echo", "hi", files={"srv/a": b"a"}), "v1")
    skopeo = Containers(workspace / "home", signed_in.host)
    pair = f"token:{signed_in.acme.password}"
    target = f"docker://{signed_in.host}/{repository}:v1"
    puller = make_role(signed_in, allow("registry:GetAuthorizationToken", "registry:PullImage"))
    skopeo.run("skopeo", "copy", "--dest-creds", pair, f"oci:{workspace}/image:v1", target)
    found = asyncio.run(fetch(signed_in, puller, f"{signed_in.host}/{repository}:v1"))
    assert (found.layers[1] / "srv/a").read_bytes() == b"a"
    assert found.config.cmd == ["echo", "hi"]
    with pytest.raises(ImageRefused, match="not allowed to everybody"):
        asyncio.run(fetch(signed_in, None, f"{repository}:v1"))
