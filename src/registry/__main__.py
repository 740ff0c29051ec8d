"""``python -m registry`` is the ``entrepot`` command."""

import sys

from registry.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
