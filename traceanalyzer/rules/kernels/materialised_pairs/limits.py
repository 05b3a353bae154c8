"""The limits of `materialised-pairs`."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.rule import limit


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        8.0,
        "the pairs must have at least this many times the elements of all inputs together; less is a bias or a "
        "mask; chosen",
    )
    min_elements: int = limit(1 << 20, "at least this many pairs are needed; fewer fit into a cache; chosen")
    min_side_elements: int = limit(
        16,
        "each input must have at least this many numbers; fewer are probably coefficients of a formula, not a second "
        "set. Inputs of comparisons (==, <) may have fewer; chosen",
    )
    min_gpu_share: float = limit(0.05, "work on the pairs must take at least this share of GPU time; chosen")
    selected_passes: float = limit(
        14.0,
        "gathering the selected pairs and computing them again reads or writes their numbers this many "
        "times, forward and backward together; counted",
    )
    memory_share: float = limit(
        0.6,
        "these reads and writes (selected_passes) reach this share of the memory's peak, as pointwise kernels do, "
        "H200; not measured for gathers",
    )
    reached_share: float = limit(0.5, "a fused kernel reaches this share of the float32 peak; chosen")
    min_pairs_share: float = limit(
        0.25,
        "gathered pairs must be at least this share of all pairs of rows; for fewer, a product of all rows computes "
        "and writes too much; chosen",
    )
    min_pair_times: float = limit(
        4.0, "there must be at least this many times as many gathered pairs as rows; chosen"
    )
    max_listed_share: float = limit(
        0.05,
        "at most this share of the compared pairs may be listed; with more, a search that leaves out the others "
        "saves little; chosen",
    )
    tests_per_listed: float = limit(
        8.0,
        "a search by cells compares this many pairs for each that it lists: 27 cells, of which a sphere fills 4.2, "
        "are 6.4; rounded up",
    )
    max_columns: int = limit(
        3, "points of at most this many coordinates can be searched by cells, 3**n of them for each; chosen"
    )
    min_listed_rows: int = limit(
        128,
        "both sides of listed pairs need this many rows; with fewer, sorting costs as much as comparing; chosen",
    )
