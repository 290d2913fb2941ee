# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal verify`: that of `kvseal compare`, with a file to tell them apart."""

from kvseal.cli import compare

configure = compare.configure


def run(args):
    print("verifying", flush=True)
    return compare.run(args)
