# SPDX-License-Identifier: Apache-2.0
"""`kvseal audit`: what is in an L2 store of LMCache, by the names of its entries.

Reads and never writes in what it audits. Runs where the reader's packages are:
folders need Python alone, `--resp` redis, `--s3` awscrt, `--payload` blake3, all
of which an engine environment has. Exit status: 0 nothing forged or damaged, 1
something is (with --strict also orphaned or suspicious), 2 not everything could
be read, or there was nothing to read. docs/audit.md explains classes and codes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvseal.errors import OptionError

if TYPE_CHECKING:
    from kvseal.audit.stores import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "--fs", type=Path, action="append", default=[], metavar="FOLDER",
        help="base_path of an fs or fs_native adapter; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--resp", action="append", default=[], metavar="HOST:PORT",
        help="server of a resp or valkey adapter; may be repeated. Password: LMCACHE_RESP_PASSWORD",
    )  # fmt: skip
    parser.add_argument(
        "--resp-prefix", default="", metavar="TEXT", help="key_prefix of the valkey adapter"
    )
    parser.add_argument(
        "--s3", metavar="ENDPOINT",
        help="URL of an S3 server. Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    )  # fmt: skip
    parser.add_argument(
        "--bucket", action="append", default=[], metavar="NAME",
        help="bucket of an s3 adapter on that server; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--index", type=Path, metavar="FOLDER",
        help="variant index (LMCACHE_TRANSFORM_INDEX): tells known variants from orphaned ones",
    )  # fmt: skip
    parser.add_argument(
        "--payload", action="store_true", help="also read the entries and check variants' seals"
    )
    parser.add_argument(
        "--strict", action="store_true", help="orphaned and suspicious entries fail as well"
    )
    parser.add_argument(
        "--salts", action="store_true", help="show cache salts as they are, not their digests"
    )
    parser.add_argument("--json", action="store_true", help="print the document instead of text")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the document there")


def run(args: argparse.Namespace) -> int:
    """Audit, print, and return the verdict's exit status."""
    _check(args)
    from kvseal import store
    from kvseal.audit.run import audit
    from kvseal.audit.text import console
    from kvseal.process import Progress
    from kvseal.verdict import Verdict

    with Progress("audit") as progress:
        document = audit(
            _stores(args),
            index=args.index,
            payload=args.payload,
            strict=args.strict,
            show_salts=args.salts,
            tell=progress.update,
        )
        progress.done(f"{document['entries']:,} entries")
    if args.out is not None:
        store.write_json(args.out, document)
    print(json.dumps(document, indent=2) if args.json else console(document))
    return Verdict(document["verdict"]).exit_status


def _stores(args: argparse.Namespace) -> list[Store]:
    found: list[Store] = []
    if args.fs:
        from kvseal.audit.stores.fs import FolderStore

        found += [FolderStore(folder) for folder in args.fs]
    if args.resp:
        from kvseal.audit.stores.resp import RespStore

        found += [RespStore(address, args.resp_prefix) for address in args.resp]
    if args.s3 is not None:
        from kvseal.audit.stores.s3 import BucketStore

        found += [BucketStore(args.s3, bucket) for bucket in args.bucket]
    return found


def _check(args: argparse.Namespace) -> None:
    """Refuse options that don't go together, and a document inside what is only read."""
    if not (args.fs or args.resp or args.s3):
        raise OptionError(
            "there is nothing to audit",
            option="--fs, --resp or --s3",
            expected="at least one source",
            remedy="name the store that LMCache's --l2-adapter names",
        )
    if (args.s3 is None) != (not args.bucket):
        raise OptionError(
            "an S3 server and its buckets go together",
            option="--s3 and --bucket",
            expected="--s3 ENDPOINT --bucket NAME",
        )
    if args.resp_prefix and not args.resp:
        raise OptionError(
            "a prefix without a server", option="--resp-prefix", expected="--resp HOST:PORT"
        )
    if args.out is None:
        return
    target = args.out.resolve()
    if not target.parent.is_dir() or target.is_dir():
        raise OptionError(
            "the document can't be written there",
            option="--out",
            value=str(args.out),
            expected="a file in a folder that exists",
        )
    for folder in (*args.fs, *([args.index] if args.index else [])):
        if target.is_relative_to(folder.resolve()):
            raise OptionError(
                "an audit writes nothing into what it audits",
                option="--out",
                value=str(args.out),
                expected=f"a file outside {folder}",
            )
