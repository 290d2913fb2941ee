# SPDX-License-Identifier: copyleft-next-0.3.1
"""`python -m kvseal` and the entry of the zip application."""

import sys

from kvseal.cli import main

if __name__ == "__main__":
    sys.exit(main())
