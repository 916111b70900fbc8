"""``python -m msprobe_nb``."""

from __future__ import annotations

import sys

from msprobe_nb.cli import main

if __name__ == "__main__":
    sys.exit(main())
