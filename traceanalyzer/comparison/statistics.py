"""Whether a difference is more than noise: permutation tests, Holm's correction, a bootstrap over captures."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from traceanalyzer.model.arrays import Floats

ALPHA = 0.05
_EXACT = 1_000  # ways to deal the values out: so many are tried one by one; 6 and 6 values have 924
_RESAMPLES = 2_000
_SEED = 25
# Student's t over the normal's 1.96, by captures of the side that has fewer: a bootstrap of few captures is too sure,
_FEW = {3: 2.78 / 1.96, 4: 2.45 / 1.96, 5: 2.31 / 1.96}  # and its spread too small, by sqrt((n - 1) / n)


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Two-sided p of the rank sum of two samples, were they dealt out by chance; None where either has none.

    All ways to deal them out are tried where these are few; else the distribution's mean and variance, ties included.
    """
    if not len(first) or not len(second):
        return None
    _, number, count = np.unique(np.concatenate((first, second)), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[number]  # from 1; equal values have their mean
    n, m = len(first), len(second)
    mean = n * (n + m + 1) / 2
    off = abs(float(ranks[:n].sum()) - mean)
    if math.comb(n + m, n) <= _EXACT:
        sums = np.array([sum(dealt) for dealt in combinations(ranks.tolist(), n)])
        return float((np.abs(sums - mean) >= off - 1e-9).mean())
    variance = n * m / (n + m) * float(ranks.var(ddof=1))
    return math.erfc(max(off - 0.5, 0.0) / math.sqrt(2 * variance)) if variance > 0 else 1.0


def holm(p: Sequence[float | None]) -> list[bool]:
    """Which of the tests reject at `ALPHA` when all are made at once; None rejects nothing."""
    known = sorted((value, index) for index, value in enumerate(p) if value is not None)
    rejected = [False] * len(p)
    for done, (value, index) in enumerate(known):
        if value > ALPHA / (len(known) - done):
            break
        rejected[index] = True
    return rejected


def log_interval(base: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95 % interval of log(new / base) of the mean step, given the steps of each capture in ns.

    Captures are drawn first, then steps within each.
    """
    generator = np.random.default_rng(_SEED)
    drawn = [_means(side, generator) for side in (base, new)]
    difference = np.log(drawn[1]) - np.log(drawn[0])
    mean_base, mean_new = (float(np.mean([np.mean(steps) for steps in side])) for side in (base, new))
    centre = math.log(mean_new / mean_base)
    low, high = (float(np.quantile(difference, at)) for at in (ALPHA / 2, 1 - ALPHA / 2))
    fewest = min(len(base), len(new))
    wider = _FEW.get(fewest, 1.0) * math.sqrt(fewest / max(fewest - 1, 1))
    return centre - (centre - low) * wider, centre + (high - centre) * wider


def _means(captures: Sequence[Sequence[float]], generator: np.random.Generator) -> Floats:
    chosen = generator.integers(len(captures), size=(_RESAMPLES, len(captures)))
    means = np.empty((_RESAMPLES, len(captures)))
    for index, steps in enumerate(captures):
        values = np.asarray(steps, float)
        here = chosen == index
        draws = generator.integers(len(values), size=(int(here.sum()), len(values)))
        means[here] = values[draws].mean(axis=1)
    return np.asarray(means.mean(axis=1), np.float64)


def spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms; 0 of fewer than two."""
    known = [math.log(value) for value in values if value > 0]
    return float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
