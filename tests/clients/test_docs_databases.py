"""The commands of ``docs/databases.md`` are run in their order, with servers that really run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from registry.cli.client import Client
from tests.clients.docs_shell import commands_of, shell, write_program
from tests.clients.test_database_backups import database_environment
from tests.entrepot import Home, Install, installed
from tests.tools import require_tool

PAGE: Final = "docs/databases.md"
