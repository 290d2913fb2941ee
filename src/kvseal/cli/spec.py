# SPDX-License-Identifier: Apache-2.0
"""`kvseal spec`: make a run spec from variables, or say whether one is fulfilled.

kvseal spec --vars extra_vars.yaml --out run-spec.json
kvseal spec --up-to-date run-spec.json    exit 0: nothing to do; 1: there is
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.spec import archive, freshness, installer
from kvseal.spec.runspec import load_spec
from kvseal.spec.translate import Surroundings, translate
from kvseal.workload.matrix import CASES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options to `parser`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--vars", type=Path, metavar="FILE", help="variables as Kconfig wrote them")
    what.add_argument(
        "--up-to-date", type=Path, metavar="SPEC", help="say whether SPEC is fulfilled already"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the run spec goes")
    parser.add_argument(
        "--checkout",
        type=Path,
        default=Path.cwd(),
        metavar="DIR",
        help="folder that relative paths start from (default: this one)",
    )


def run(args: argparse.Namespace) -> int:
    """Carry out the verb; return its exit status."""
    if args.up_to_date is not None:
        return _up_to_date(args.up_to_date)
    if args.out is None:
        raise OptionError(
            "a run spec has to go somewhere",
            option="--out",
            expected="a file name",
            remedy="kvseal spec --vars extra_vars.yaml --out run-spec.json",
        )
    try:
        return _write(args)
    except OSError as error:
        raise PrerequisiteError(
            f"the run spec can't be made: {error}",
            option="--out",
            value=str(args.out),
            expected="a folder with room that this user may write in",
            remedy="make room, or choose another folder; an older run spec is as it was",
        ) from None


def _write(args: argparse.Namespace) -> int:
    checkout = args.checkout.resolve()
    path, sha256 = archive.write_archive(checkout / "src" / "kvseal", checkout / "build")
    around = Surroundings(
        checkout=checkout,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        cache=installer.cache_folder(os.environ),
        archive=path,
        archive_sha256=sha256,
        cases=tuple(case.name for case in CASES),
    )
    spec = translate(_variables(args.vars), around)
    unfinished = args.out.with_name(f".{args.out.name}.{os.getpid()}")
    unfinished.write_text(spec.dumps(), encoding="utf-8")
    unfinished.replace(args.out)
    print(f"{args.out}: {spec.environment.name}, {spec.model.name}, spec {spec.sha256()[:8]}")
    return 0


def _up_to_date(path: Path) -> int:
    spec = load_spec(path)
    reason = freshness.reason_to_work(spec)
    if reason is not None:
        print(f"to do: {reason}")
        return 1
    if spec.run:
        print(
            f"up to date: {spec.roots.results}/latest has the verdict PASS for this "
            f"configuration and source (`make {spec.workflow}-run` runs it again)"
        )
    else:
        print(
            f"up to date: {spec.environment.name} is built and patched (`make menuconfig` "
            f"switches the run on, `make {spec.workflow}-run` runs it once)"
        )
    return 0


def _variables(path: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError(
            f"variables can't be read: {error}",
            option="--vars",
            value=str(path),
            expected="a YAML file of variables",
            remedy="`make` writes one from .config",
        ) from None
    if not isinstance(loaded, dict):
        raise OptionError("no variables in the file", option="--vars", value=str(path))
    return loaded
