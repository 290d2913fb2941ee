# SPDX-License-Identifier: Apache-2.0
"""Kconfig for `make`: profiles in, .config and extra_vars.yaml out.

    kconfig.py defconfig NAME | defconfig-file FILE
    kconfig.py olddefconfig | menuconfig | savedefconfig | extra-vars

Kconfiglib drops what it does not know with a warning at most; a misspelt
symbol would then leave a default in its place without a word. So every line
of a profile or .config is checked first, all mistakes are told at once, and
nothing is written when there is one. Symbols of KNLP and kdevops are read as
ours, with a notice each. Runs in the controller environment, in the checkout.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import kconfiglib

from kvseal.errors import KvsealError, OptionError
from kvseal.spec import legacy
from kvseal.spec.rules import refuse

CHECKOUT = Path(__file__).resolve().parent.parent
_SET = re.compile(r"CONFIG_([A-Za-z0-9_]+)=(.*)")
_UNSET = re.compile(r"# CONFIG_([A-Za-z0-9_]+) is not set")


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One line of a configuration; `value` as Kconfig writes it, `place` its file and line."""

    name: str
    value: str
    place: str


def load() -> kconfiglib.Kconfig:
    """Return the checkout's Kconfig, with no values set."""
    os.environ["srctree"] = str(CHECKOUT)  # noqa: SIM112 (Kconfiglib's name for it)
    os.environ.setdefault("CONFIG_", "CONFIG_")
    kconf = kconfiglib.Kconfig("Kconfig", warn_to_stderr=False)
    if kconf.warnings:
        raise OptionError("Kconfig is faulty:\n" + "\n".join(kconf.warnings), option="Kconfig")
    return kconf


def read(path: Path) -> list[Assignment]:
    """Return the assignments of a profile or .config.

    Raises:
        OptionError: the file can't be read or a line is neither an assignment nor a comment.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"configuration can't be read: {error}",
            option=str(path),
            expected="a profile, for example made by `make savedefconfig`",
            remedy=f"choose one of: {' '.join(profiles())}",
        ) from None
    found, mistakes = [], []
    for number, raw in enumerate(lines, 1):
        line, place = raw.strip(), f"{path.name}:{number}"
        if match := _SET.fullmatch(line):
            found.append(Assignment(match[1], match[2], place))
        elif match := _UNSET.fullmatch(line):
            found.append(Assignment(match[1], "n", place))
        elif line and not line.startswith("#"):
            mistakes.append(
                OptionError(
                    f"{place}: not a line of a configuration",
                    value=line,
                    expected="CONFIG_NAME=value, or a comment",
                )
            )
    refuse(mistakes)
    return found


def ours(kconf: kconfiglib.Kconfig, lines: Iterable[Assignment]) -> list[Assignment]:
    """Return `lines` with symbols of KNLP and kdevops translated and each notice printed.

    Raises:
        OptionError: for unknown symbols, naming the nearest known one.
    """
    known = {symbol.name for symbol in kconf.unique_defined_syms}
    result, mistakes = [], []
    for line in lines:
        if line.name in known:
            result.append(line)
            continue
        try:
            translation = legacy.translate(line.name, line.value, place=line.place)
        except OptionError as error:
            mistakes.append(error)
            continue
        if translation is None:
            near = difflib.get_close_matches(line.name, [*known, *legacy.known()], n=1, cutoff=0.5)
            mistakes.append(
                OptionError(
                    f"{line.place}: unknown symbol",
                    option=f"CONFIG_{line.name}",
                    value=line.value,
                    expected=f"perhaps CONFIG_{near[0]}" if near else "a symbol of Kconfig",
                    remedy="correct the line or take it out",
                )
            )
            continue
        print(translation.notice, file=sys.stderr)
        result += [Assignment(name, value, line.place) for name, value in translation.assignments]
    refuse(mistakes)
    return result


def apply(kconf: kconfiglib.Kconfig, lines: list[Assignment]) -> None:
    """Set the values, then make sure that each of them really holds.

    Raises:
        OptionError: for values that Kconfig does not take, all of them at once.
    """
    mistakes = []
    first: dict[str, Assignment] = {}
    for line in lines:
        before = first.setdefault(line.name, line)
        if before.value != line.value:
            mistakes.append(
                OptionError(
                    f"{line.place}: set before, at {before.place}, to {before.value}",
                    option=f"CONFIG_{line.name}",
                    value=line.value,
                    remedy="keep one of the two lines",
                )
            )
        kconf.syms[line.name].set_value(_plain(kconf.syms[line.name], line.value))
    mistakes += [mistake for line in first.values() if (mistake := _unmet(kconf, line))]
    refuse(mistakes)


def _plain(symbol: kconfiglib.Symbol, value: str) -> str:
    if symbol.orig_type == kconfiglib.STRING and re.fullmatch(r'".*"', value):
        return str(kconfiglib.unescape(value[1:-1]))
    return value


def _unmet(kconf: kconfiglib.Kconfig, line: Assignment) -> OptionError | None:
    symbol = kconf.syms[line.name]
    quoted = line.value.startswith('"') and line.value.endswith('"') and len(line.value) > 1
    text = symbol.orig_type == kconfiglib.STRING
    if symbol.str_value == _plain(symbol, line.value) and quoted == text:
        return None
    if kconfiglib.expr_value(symbol.direct_dep) == 0:
        if line.value == "n":
            return None  # a symbol that is out of reach is as good as unset
        expected = f"{kconfiglib.expr_str(symbol.direct_dep)} to be set"
        message, remedy = "the symbol depends on another", "set that one too"
    else:
        expected = _expected(symbol)
        message, remedy = "the symbol can't have this value", "correct the line"
    return OptionError(
        f"{line.place}: {message}",
        option=f"CONFIG_{line.name}",
        value=line.value,
        expected=expected,
        remedy=remedy,
    )


def _expected(symbol: kconfiglib.Symbol) -> str:
    if symbol.orig_type == kconfiglib.BOOL:
        return "y or n"
    if symbol.orig_type == kconfiglib.STRING:
        return 'text in double quotes, "…"'
    bounds = [
        f"{low.str_value} to {high.str_value}"
        for low, high, cond in symbol.ranges
        if kconfiglib.expr_value(cond)
    ]
    return f"an integer, {bounds[0]}" if bounds else "an integer"


def variables(kconf: kconfiglib.Kconfig) -> str:
    """Return extra_vars.yaml: lower-case names, hidden symbols left out, as kdevops has it."""
    lines = []
    for symbol in kconf.unique_defined_syms:
        if not symbol.visibility:
            continue
        value = symbol.str_value
        if symbol.orig_type == kconfiglib.BOOL:
            value = "True" if value == "y" else "False"
        elif symbol.orig_type == kconfiglib.STRING:
            # A JSON string is a YAML string in double quotes.
            value = json.dumps(value, ensure_ascii=False)
        lines.append(f"{symbol.name.lower()}: {value}\n")
    return "".join(lines)


def profiles() -> list[str]:
    """Return the names of the profiles in defconfigs/."""
    return sorted(path.name for path in (CHECKOUT / "defconfigs").iterdir())


def config_path() -> Path:
    """Return .config, or what KCONFIG_CONFIG names."""
    return Path(os.environ.get("KCONFIG_CONFIG", ".config"))


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def main(argv: list[str]) -> int:
    """Carry out one verb; return the exit status."""
    verb, *rest = argv or ["none"]
    kconf = load()
    config = config_path()
    if verb == "defconfig" and len(rest) == 1:
        source = CHECKOUT / "defconfigs" / rest[0]
    elif verb == "defconfig-file" and len(rest) == 1:
        source = Path(rest[0])
    elif verb in ("olddefconfig", "menuconfig", "savedefconfig", "extra-vars") and not rest:
        source = config
    else:
        raise OptionError(
            "no such verb",
            option="kconfig.py",
            value=" ".join(argv),
            expected="defconfig NAME, defconfig-file FILE, olddefconfig, menuconfig, "
            "savedefconfig, extra-vars",
        )
    if verb != "menuconfig" or config.exists():
        apply(kconf, ours(kconf, read(source)))
    if verb in ("defconfig", "defconfig-file", "olddefconfig"):
        print(kconf.write_config(str(config)), file=sys.stderr)
    elif verb == "savedefconfig":
        print(kconf.write_min_config("defconfig", header=""), file=sys.stderr)
    elif verb == "extra-vars":
        _write(Path("extra_vars.yaml"), variables(kconf))
    else:
        _menuconfig(kconf)
    return 0


def _menuconfig(kconf: kconfiglib.Kconfig) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise OptionError(
            "menuconfig needs a terminal",
            option="menuconfig",
            expected="a terminal on standard input and output",
            remedy="edit .config, then `make olddefconfig`",
        )
    import menuconfig

    menuconfig.menuconfig(kconf)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KvsealError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_status)
    except OSError as problem:
        print(
            f"{problem.filename or config_path()} can't be written: {problem.strerror}\n"
            "  remedy:   make room, or let this user write there; nothing was changed",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
