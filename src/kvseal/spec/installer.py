# SPDX-License-Identifier: Apache-2.0
"""The user's pip settings, told to uv.

uv installs in seconds what pip takes minutes for, but reads none of pip's
configuration. A user whose pip works behind an index mirror, with a folder of
wheels or a certificate of their own must not have to set all that again. So
pip itself is asked (`pip config list` knows its files, environment variables
and their order), and the answer becomes UV_* variables. A UV_* variable that
the user has set is left alone. Standard library only: used by
scripts/controller.py before anything is installed, and on a node by

    PYTHONPATH=kvseal-….pyz python3 -m kvseal.spec.installer print-env [--locked]

which prints a JSON object of variables to add to the environment.

Constraints: uv refuses them beside hash-locked requirements, and a lock is
stricter than any constraint. With `--locked` they are switched off, and the
summary says so; without, they apply.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kvseal.errors import PrerequisiteError

_ORDER = ("global", "install", ":env:")
"""Sections that apply to `pip install`, the later stronger. Source: pip's configuration page."""

_IGNORED = ("no-binary", "only-binary", "pre", "target", "prefix", "user", "require-hashes")
"""pip settings that choose files or places; a lock and an environment decide those here."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """UV_* variables, and one line for the user on where they come from."""

    variables: dict[str, str]
    summary: str


def read_pip_config(python: str) -> dict[str, str]:
    """Return the settings that `python -m pip install` would use, by option name.

    Raises:
        PrerequisiteError: that Python has no working pip.
    """
    command = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(f"pip can't be asked for its settings: {error}") from None
    if done.returncode != 0:
        raise PrerequisiteError(
            "pip can't be asked for its settings",
            option=" ".join(command),
            value=done.stderr.strip()[-500:],
            expected="a list of settings",
            remedy="repair pip's configuration file, or this Python's pip",
        )
    return parse_pip_config(done.stdout)


def parse_pip_config(text: str) -> dict[str, str]:
    """Parse the output of `pip config list`, keeping what applies to `pip install`."""
    found: dict[str, tuple[int, str]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(global|install|:env:)\.([a-z0-9-]+)=(.*)", line)
        if match is None:
            continue
        section, name, literal = match.groups()
        rank = _ORDER.index(section)
        if rank >= found.get(name, (-1, ""))[0]:
            found[name] = (rank, str(ast.literal_eval(literal)))
    return {name: value for name, (_, value) in found.items()}


def translate(pip: Mapping[str, str], environment: Mapping[str, str], *, locked: bool) -> Settings:
    """Return what uv must be told for it to install as pip would.

    `pip` is from `read_pip_config`; `environment` the process environment.
    `locked` says that everything installed is pinned by hash.
    """
    wanted: dict[str, str] = {}
    offline = pip.get("no-index", "").lower() in ("1", "true", "yes", "on")
    links = pip.get("find-links", "").split()
    if links:
        wanted["UV_FIND_LINKS"] = ",".join(links)
    if offline:
        # uv has no variable for --no-index; with no network it comes to the same.
        wanted["UV_OFFLINE"] = "1"
    else:
        if "index-url" in pip:
            wanted["UV_DEFAULT_INDEX"] = pip["index-url"].strip()
        if pip.get("extra-index-url", "").split():
            wanted["UV_INDEX"] = " ".join(pip["extra-index-url"].split())
            # pip takes the best version of all indexes; uv would stop at the
            # first that has the name. Hash locks keep this safe.
            wanted["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    for option, variable in (
        ("cert", "SSL_CERT_FILE"),
        ("client-cert", "SSL_CLIENT_CERT"),
        ("timeout", "UV_HTTP_TIMEOUT"),
        ("retries", "UV_HTTP_RETRIES"),
        ("proxy", "ALL_PROXY"),
    ):
        value = pip.get(option, pip.get(f"default-{option}", "")).strip()
        if value:
            wanted[variable] = value
    if "trusted-host" in pip:
        wanted["UV_INSECURE_HOST"] = " ".join(pip["trusted-host"].split())
    constraints = pip.get("constraint", "").split()
    if constraints and not locked:
        wanted["UV_CONSTRAINT"] = " ".join(constraints)
    variables = {name: value for name, value in wanted.items() if name not in environment}
    if locked and (constraints or environment.get("UV_CONSTRAINT")):
        variables["UV_CONSTRAINT"] = ""
    return Settings(variables, _summary(pip, environment, variables, bool(constraints) and locked))


def _summary(
    pip: Mapping[str, str],
    environment: Mapping[str, str],
    variables: Mapping[str, str],
    overruled: bool,
) -> str:
    parts = [
        f"{name}={_without_password(value)}" for name, value in sorted(variables.items()) if value
    ]
    text = "uv uses from pip: " + (", ".join(parts) or "nothing, it sets nothing")
    own = sorted(name for name in environment if name.startswith("UV_"))
    if own:
        text += f"; from the environment: {', '.join(own)}"
    if overruled:
        text += f"; not the constraints {pip['constraint'].strip()!r}: hash-locked pins win"
    left = [name for name in _IGNORED if name in pip]
    if left:
        text += f"; not {', '.join(left)}: the lock decides"
    return text


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//…@", text)


def main(argv: list[str] | None = None) -> int:
    """Print the variables as JSON; the summary goes to stderr."""
    parser = argparse.ArgumentParser(prog="kvseal.spec.installer", description=__doc__)
    parser.add_argument("action", choices=["print-env"])
    parser.add_argument("--locked", action="store_true", help="all requirements are hash-locked")
    parser.add_argument("--python", default=sys.executable, help="the Python whose pip to ask")
    args = parser.parse_args(argv)
    try:
        pip = read_pip_config(args.python)
    except PrerequisiteError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    settings = translate(pip, os.environ, locked=args.locked)
    print(settings.summary, file=sys.stderr)
    print(json.dumps(settings.variables, indent=2, sort_keys=True))
    return 0


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the cache folder of a user who has configured none.

    `$KVSEAL_CACHE`, else `$XDG_CACHE_HOME/kvseal`, else `~/.cache/kvseal`.
    """
    if environment.get("KVSEAL_CACHE"):
        return Path(environment["KVSEAL_CACHE"]).absolute()
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kvseal"


if __name__ == "__main__":
    sys.exit(main())
