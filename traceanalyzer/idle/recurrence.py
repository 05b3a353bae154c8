"""What recurs from step to step, what happens once, and what only gets a recording under way."""

from __future__ import annotations

import numpy as np
import pandas as pd


def standing_out(sums: pd.DataFrame, steps: int, spike: float) -> pd.DataFrame:
    """Which parts stand out in few steps: in leading steps only, or in a single one.

    Args:
        sums: columns key (any hashable), step (position) and ns.
        steps: how many steps there are.
        spike: a part stands out in a step where it is more than this times its median over all steps.

    Returns:
        One row per key and step that stands out, with `leading` (all such steps of the key are in the first
        third) and `alone` (it is the only such step of the key), both bool.
    """
    table = sums.pivot_table(index="key", columns="step", values="ns", aggfunc="sum", fill_value=0)
    table = table.reindex(columns=range(steps), fill_value=0)
    spikes = table.gt(spike * table.median(axis=1), axis=0)
    at, step = np.nonzero(spikes.to_numpy())
    found = pd.DataFrame({"key": table.index.to_numpy()[at], "step": step})
    last, count = (found.groupby("key")["step"].transform(how) for how in ("max", "size"))
    return found.assign(leading=last < max(1, steps // 3), alone=count == 1)
