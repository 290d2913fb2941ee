# SPDX-License-Identifier: Apache-2.0
"""Estimates with intervals, from per-prompt figures alone; the same on every machine.

Proportions have Wilson's score interval, which stays inside 0 … 1 and says
something at 10 of 10, where the usual ± interval has no width. Everything else
has a bootstrap percentile interval over prompts, paired: one resample draws
the same prompts for both arms. Draws come from random.Random(seed).random(),
the one method whose sequence Python promises to keep.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

CONFIDENCE_PERCENT = 95
RESAMPLES = 2000
SEED = 0
Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""

Row = TypeVar("Row")


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % interval; ends are None where there is none."""

    value: float
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as it stands in result.json."""
        return {"value": self.value, "low": self.low, "high": self.high}


def wilson(correct: int, total: int) -> Estimate | None:
    """Return correct / total with Wilson's 95 % score interval; None of nothing.

    Source: Wilson 1927, "Probable inference, the law of succession, and
    statistical inference", equation for the limits of p; recommended for small
    samples by Brown, Cai and DasGupta 2001, section 3.1.1.
    """
    if total == 0:
        return None
    share = correct / total
    z2 = Z_95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    # Rounding may put an end a hair inside the share it must hold, at 0 and 1.
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the `share` quantile of `values` (at least one), linear between neighbours.

    Source: Hyndman and Fan 1996, "Sample quantiles in statistical packages", type 7.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    if ordered[below] == ordered[above]:
        return ordered[below]
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float | None:
    """Return the median, None of nothing."""
    return quantile(values, 0.5) if values else None


def bootstrap(
    rows: Sequence[Row], statistic: Callable[[Sequence[Row]], float | None]
) -> Estimate | None:
    """Return `statistic` of `rows` with its 95 % bootstrap percentile interval.

    `rows` are one entry a prompt. None when the statistic of the rows is not
    defined; ends are None with fewer than two rows, where resampling shows
    nothing. Resamples for which the statistic is not defined are left out.

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap",
    section 13.3 (percentile interval).
    """
    value = statistic(rows)
    if value is None:
        return None
    if len(rows) < 2:
        return Estimate(value, None, None)
    draws = random.Random(SEED)  # noqa: S311
    count = len(rows)
    seen = []
    for _ in range(RESAMPLES):
        resample = [rows[int(draws.random() * count)] for _ in range(count)]
        found = statistic(resample)
        if found is not None:
            seen.append(found)
    tail = (1 - CONFIDENCE_PERCENT / 100) / 2
    return Estimate(value, quantile(seen, tail), quantile(seen, 1 - tail))


def throughput(tokens: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Return all tokens over all seconds, in tokens per second; None over no time.

    A ratio of sums, not a mean of ratios: long answers weigh as much as they took.
    """
    spent = math.fsum(seconds)
    return sum(tokens) / spent if spent > 0 else None
