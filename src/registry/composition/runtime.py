"""The registry's family in ``entrepot serve``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from registry.composition.background import BACKGROUND
from registry.control.routes import HANDLERS

RUNTIME: Final = replace(BACKGROUND, routes=HANDLERS)
