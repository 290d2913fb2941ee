# SPDX-License-Identifier: Apache-2.0
"""`python -m kvseal` and the entry of the zip application."""

import sys

from kvseal.cli import main

if __name__ == "__main__":
    sys.exit(main())
