"""Families get what they ask for, made in the order of who asks for what; what lacks is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cloudcore.family import Family, Runtime
from cloudcore.keyring import create_root_key
from cloudcore.ports import Offer, Opening, Port, PortMissing, known, offer
from registry.composition.dev import DEV
from registry.composition.main import Registry, prepare
from registry.composition.ports import CROSS_FAMILY_OFFERS
from registry.composition.serve import SERVE
from registry.settings.settings import Settings
from tests.databases import planted

ROD: Final[Port[str]] = Port("fishing.rod")
LINE: Final[Port[str]] = Port("tackle.line")


class Steps:
    """What was made and closed, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def open_needs(self, opening: Opening) -> list[str]:
        needs = [await opening.get(ROD), await opening.get(LINE), await opening.get(ROD)]
        self._note(opening, "fishing")
        return needs

    async def make_rod(self, opening: Opening) -> str:
        made = f"rod with {await opening.get(LINE)}"
        self._note(opening, "rod")
        return made

    async def make_line(self, opening: Opening) -> str:
        self._note(opening, "line")
        return "line"

    async def make_knot(self, opening: Opening) -> str:
        return await opening.get(ROD)

    def _note(self, opening: Opening, name: str) -> None:
        self.seen.append(name)
        opening.resources.callback(self.seen.append, f"no {name}")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings(data=planted(tmp_path / "data"), public_url="http://registry.test")
    prepare(settings)
    create_root_key(settings.root_key)
    return settings


@pytest.fixture
def steps() -> Steps:
    return Steps()


def fishing_with(steps: Steps) -> Family[list[str]]:
    return Family(name="fishing", runs=Runtime(open=steps.open_needs))


def registry_of(settings: Settings, steps: Steps, *offers: Offer) -> Registry:
    """Return a registry with that family, to which these ports are offered."""
    families = (*DEV.families, fishing_with(steps))
    return Registry(settings, replace(DEV, families=families, offers=offers))


async def test_each_port_is_filled_once_and_closed_before_what_it_asked_for(
    settings: Settings, steps: Steps
) -> None:
    offers = (offer(ROD, steps.make_rod), offer(LINE, steps.make_line))
    async with registry_of(settings, steps, *offers).open_planes() as (opening, _):
        assert await opening.needs_of(fishing_with(steps)) == [
            "rod with line",
            "line",
            "rod with line",
        ]
    assert steps.seen == ["line", "rod", "fishing", "no fishing", "no rod", "no line"]


async def test_a_family_without_its_port_stops_the_start(settings: Settings, steps: Steps) -> None:
    registry = registry_of(settings, steps, offer(ROD, steps.make_rod))
    told = (
        "the family fishing needs the port tackle.line, which nothing offers."
        " fishing.rod asks for it."
    )
    with pytest.raises(PortMissing, match=re.escape(told)):
        await registry.start()
    with pytest.raises(PortMissing, match=r"the family fishing needs the port fishing\.rod"):
        await registry_of(settings, steps).start()
    assert steps.seen == []


async def test_ports_that_ask_for_each_other_are_told(settings: Settings, steps: Steps) -> None:
    offers = (offer(ROD, steps.make_rod), offer(LINE, steps.make_knot))
    with pytest.raises(PortMissing, match=r"fishing\.rod, which asks for itself"):
        await registry_of(settings, steps, *offers).start()


async def test_what_nobody_asks_for_is_not_made(settings: Settings, steps: Steps) -> None:
    extra: Port[str] = Port("tackle.extra")
    offers = (known(ROD, "rod"), known(LINE, "line"), offer(extra, steps.make_rod))
    async with registry_of(settings, steps, *offers).open_planes():
        assert steps.seen == ["fishing"]


async def test_every_port_that_crosses_families_is_needed_to_serve(settings: Settings) -> None:
    for crossing in CROSS_FAMILY_OFFERS:
        others = tuple(each for each in CROSS_FAMILY_OFFERS if each is not crossing)
        missing = f" needs the port {crossing.port.name}, which nothing offers."
        with pytest.raises(PortMissing, match=re.escape(missing)):
            await Registry(settings, replace(SERVE, offers=others)).start()
