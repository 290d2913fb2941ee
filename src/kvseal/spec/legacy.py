# SPDX-License-Identifier: Apache-2.0
"""Symbols of a KNLP or kdevops configuration, in terms of ours.

KNLP's own profile uses KNLP_LMCACHE_SNAPKV and KNLP_SNAPKV_*, and writes ratios
as text ("0.5"), since it has no other way in Kconfig; kdevops' KNLP plugin has
one name of its own. Their configurations must load. Each symbol that is
translated is told to the user. scripts/kconfig.py calls this, nobody else.
"""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Callable

from kvseal.errors import OptionError
from kvseal.spec.options import LMCACHE_SNAPKV

ROOT = LMCACHE_SNAPKV.root


@dataclasses.dataclass(frozen=True)
class Translation:
    """What one foreign symbol means here: (our symbol, Kconfig value) pairs and a notice."""

    assignments: tuple[tuple[str, str], ...]
    notice: str


def _same(value: str) -> str:
    return value


def _percent(value: str) -> str:
    """`"0.35"` → `35`. Raises ValueError where it is no whole percent."""
    percent = decimal.Decimal(_text(value)) * 100
    if not percent.is_finite() or percent != percent.to_integral_value():
        raise ValueError("a ratio that is a whole percent, such as 0.35")
    return str(int(percent))


def _whole(value: str) -> str:
    """`"3"` or `"3.0"` → `3`. Raises ValueError for a fraction."""
    number = decimal.Decimal(_text(value))
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError("a whole number of GiB")
    return str(int(number))


def _python(value: str) -> str:
    """`"python3.12"` → `"3.12"`."""
    return f'"{_text(value).removeprefix("python")}"'


def _text(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


_Rule = tuple[str, Callable[[str], str]]

_RENAMED: dict[str, _Rule] = {
    "KNLP_LMCACHE_SNAPKV": ("", _same),
    "KNLP_SNAPKV_WORK_ROOT": ("WORK_ROOT", _same),
    "KNLP_SNAPKV_RESULTS_ROOT": ("RESULTS_ROOT", _same),
    "KNLP_SNAPKV_LMCACHE_REPO": ("LMCACHE_REPO", _same),
    "KNLP_SNAPKV_LMCACHE_REF": ("LMCACHE_REF", _same),
    "KNLP_SNAPKV_VLLM_VERSION": ("VLLM_VERSION", _same),
    "KNLP_SNAPKV_PYTHON": ("PYTHON", _python),
    "KNLP_SNAPKV_MODEL": ("MODEL", _same),
    "KNLP_SNAPKV_DATASET": ("DATASET_HUB", _same),
    "KNLP_SNAPKV_NUM_PROMPTS": ("NUM_PROMPTS", _same),
    "KNLP_SNAPKV_MAX_TOKENS": ("MAX_TOKENS", _same),
    "KNLP_SNAPKV_WINDOW_SIZE": ("WINDOW_SIZE", _same),
    "KNLP_SNAPKV_DROP_RATIO": ("DROP_PERCENT", _percent),
    "KNLP_SNAPKV_GPU_MEMORY_UTILIZATION": ("GPU_MEMORY_PERCENT", _percent),
    "KNLP_SNAPKV_L1_SIZE_GB": ("L1_SIZE_GB", _whole),
    "KNLP_SNAPKV_CUDA_VISIBLE_DEVICES": ("CUDA_VISIBLE_DEVICES", _same),
    f"{ROOT}_CUDA_DEVICES": ("CUDA_VISIBLE_DEVICES", _same),
}

_IMPLIED: dict[str, tuple[tuple[str, str], ...]] = {
    # KNLP knows no other source than git, so naming a repository or ref means it.
    "KNLP_SNAPKV_LMCACHE_REPO": (("LMCACHE_FROM_GIT", "y"),),
    "KNLP_SNAPKV_LMCACHE_REF": (("LMCACHE_FROM_GIT", "y"),),
}

# The gate of kdevops' plugin: it opens a menu there and has no meaning here.
_WITHOUT_MEANING = ("KDEVOPS_USER_WORKFLOW_KNLP",)


def known() -> tuple[str, ...]:
    """Return all foreign symbols that `translate` understands."""
    return (*_RENAMED, *_WITHOUT_MEANING)


def translate(name: str, value: str, *, place: str) -> Translation | None:
    """Return what the foreign symbol `name` means, or None where it is not foreign.

    `value` is as in .config (text in double quotes); `place` is file and line
    for the notice.

    Raises:
        OptionError: the value has no exact counterpart.
    """
    if name in _WITHOUT_MEANING:
        return Translation((), f"{place}: CONFIG_{name} has no meaning outside kdevops; left out")
    if name not in _RENAMED:
        return None
    short, convert = _RENAMED[name]
    try:
        converted = convert(value)
    except (decimal.InvalidOperation, ValueError) as error:
        raise OptionError(
            f"{place}: symbol of another project can't be translated",
            option=f"CONFIG_{name}",
            value=_text(value),
            expected=str(error) if type(error) is ValueError else "a number",
            remedy=f"set CONFIG_{ROOT}_{short} instead",
        ) from None
    pairs = ((short, converted), *_IMPLIED.get(name, ()))
    assignments = tuple((f"{ROOT}_{to}" if to else ROOT, what) for to, what in pairs)
    shown = " ".join(f"CONFIG_{to}={what}" for to, what in assignments)
    return Translation(assignments, f"{place}: CONFIG_{name} read as {shown}")
