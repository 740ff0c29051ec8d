"""The golden tables of pages in `tests/integration/pages`, played against an install each."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.integration.console_shop import open_shop
from tests.integration.page_transcripts import FOLDER, PagePlayer, cases


@pytest.mark.parametrize("name", sorted(each.stem for each in FOLDER.glob("*.txt")))
async def test_pages_say_what_their_table_says(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    failures = []
    async with open_shop(tmp_path / "data") as shop:
        for case in cases(name):
            player = PagePlayer(shop)
            try:
                await player.play(case)
            except AssertionError as error:
                failures.append(str(error))
            shown = {value for key, value in player.known.items() if "secret" in key}
            if any(each in caplog.text for each in player.secrets | shown):
                failures.append(f"{case.title}: the log shows a secret")
    assert not failures, "\n\n".join(failures)
