"""Instance pools on the console: what runs, and what an instance wrote."""

from __future__ import annotations

import html
from pathlib import Path

from cloudcore.nodes.output import NEWER
from registry.settings.node import NodeSettings
from tests.integration.console_shop import open_shop


async def test_the_page_of_a_pool_shows_its_instances_and_where_their_output_is(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path / "data") as shop:
        ids = shop.served.acme.ids
        address = f"/console/services/instance-pools/{ids['/v1/instance-pools/{}']}"
        listed = (await shop.browser.get("/console/services/instance-pools")).text
        assert "instance-pool-0" in listed
        page = (await shop.browser.get(address)).text
        instance = ids["/v1/instance-pools/{}/instances/{}"]
        assert "0 of 1 are ready" in page
        assert (
            page.index('name="size"') < page.index("More settings") < page.index('name="memory_mb"')
        )
        assert "<dt>Memory (MiB)</dt>" in page
        assert "<dt>CPU (thousandths)</dt>" in page
        assert f"{address}?logs={instance}#output" in html.unescape(page)
        assert "wrote last" not in page
        asked = await shop.browser.get(f"{address}?logs={instance}")
        assert (asked.status_code, "wrote last" in asked.text) == (200, True)
        assert "It has written nothing." in asked.text
        output = tmp_path / "data" / "nodes" / NodeSettings().name / "instances" / instance
        output.mkdir(parents=True)
        (output / NEWER).write_text("<b>up</b>\n" * 3)
        asked = await shop.browser.get(f"{address}?logs={instance}")
        assert "&lt;b&gt;up&lt;/b&gt;" in asked.text
        foreign = shop.served.globex.ids["/v1/instance-pools/{}/instances/{}"]
        assert "wrote last" not in (await shop.browser.get(f"{address}?logs={foreign}")).text
