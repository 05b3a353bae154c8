"""Decisions of a comparison, each by an example at either side of it."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from traceanalyzer.comparison.exact import _counted, _word
from traceanalyzer.comparison.functions import functions_told
from traceanalyzer.comparison.gates import broken, gates_of
from traceanalyzer.comparison.pace import host_pace
from traceanalyzer.comparison.result import Counted, Word, WorkSide
from traceanalyzer.comparison.rows import _by_time, _side
from traceanalyzer.comparison.shown import source_line


@pytest.mark.parametrize(
    ("base", "new", "means", "word"),
    [
        ((1, 3), (4, 5), (2, 4), Word.MORE),
        ((4, 5), (1, 3), (4, 2), Word.FEWER),
        ((1, 3), (2, 4), (2, 3), Word.UNKNOWN),
        ((1, 3), (2, 4), (2.5, 2.5), Word.SAME),
    ],
)
def test_counts_that_overlap_are_the_same_only_if_their_means_are(
    base: tuple[float, float], new: tuple[float, float], means: tuple[float, float], word: Word
) -> None:
    assert _word((base, new), means) is word


@pytest.mark.parametrize(
    ("counter", "shapes", "known"),
    [
        ("FLOPs", (True, True), True),
        ("FLOPs", (True, False), False),
        ("FLOPs", (False, True), False),
        ("FLOPs", (False, False), True),
        ("launches", (True, False), True),
    ],
)
def test_flops_are_compared_where_both_recorded_shapes_or_neither(
    counter: str, shapes: tuple[bool, bool], known: bool
) -> None:
    sides: Any = [SimpleNamespace(recorded=("shapes",) if one else ("stacks",)) for one in shapes]
    assert _counted(counter, *sides) is known


@pytest.mark.parametrize(("added_ns", "told"), [(4.9e6, False), (5.1e6, True)])
def test_a_new_function_is_told_where_it_takes_half_of_the_difference(added_ns: float, told: bool) -> None:
    base: Any = SimpleNamespace(functions={("g", "main"): 1e6}, step=SimpleNamespace(recorded_ns=10e6))
    new: Any = SimpleNamespace(
        functions={("g", "main"): 1e6, ("f", "main"): added_ns}, step=SimpleNamespace(recorded_ns=20e6)
    )
    said = functions_told(base, new)
    assert said.startswith("f is new (") if told else said == ""


def test_of_work_that_is_shared_out_each_side_has_its_share() -> None:
    one = SimpleNamespace(count=4, ns=1_000, exposed_ns=100, samples=(10,), name="k", dims="", types="")
    side = _side([one], {0: 0.5})  # type: ignore[list-item,arg-type]
    assert side is not None
    assert (side.count, side.ns, side.exposed_ns) == (2, 500, 50)


def test_of_several_gpus_the_line_of_sources_has_the_first() -> None:
    side: Any = SimpleNamespace(
        names=["a.json"], ranks=[0], rank=0, captures=1, gpus=["H100", "A100"], steps=1
    )
    assert source_line(side) == "a.json, H100, 1 step"


def test_a_counter_breaks_its_gate_where_every_step_has_more_than_it_may() -> None:
    """However far the means are apart: steps of one program differ. Of steps that overlap nothing is known."""
    for width, new_width, apart, most in product(range(0, 7, 3), range(0, 7, 3), range(-1, 5), range(4)):
        base, new = (2, 2 + width), (2 + width + apart, 2 + width + apart + new_width)
        means = (base[0] + base[1]) / 2, (new[0] + new[1]) / 2
        one = Counted("launches", *means, base, new, _word((base, new), means))
        found: Any = SimpleNamespace(axes=SimpleNamespace(exact=[one]))
        assert bool(broken(found, gates_of([f"launches={most}"]))) is (apart > most), (base, new, most)


def host(*rows: tuple[str, float, float], gpu: str = "H200", torch: str = "2.13") -> Any:
    """A side, by (name, count, mean in us) of what the host does in a step."""
    table = pd.DataFrame([(name, 0, count, 1e3 * us) for name, count, us in rows], columns=_HOST)
    return SimpleNamespace(gpus=(gpu,), versions={"torch": torch}, tables={"host": table})


_HOST = ["name", "part", "count", "mean_ns"]


@pytest.mark.parametrize(
    ("base", "new", "pace"),
    [
        ([("mm", 1, 10), ("add", 2, 10)], [("mm", 4, 20), ("add", 2, 10)], (20 + 20) / 30),
        ([("mm", 4, 20), ("add", 2, 10)], [("mm", 1, 10), ("add", 2, 10)], 30 / (20 + 20)),
        ([("mm", 1, 10), ("cudaMemcpyAsync", 1, 10)], [("mm", 1, 15), ("cudaMemcpyAsync", 1, 11)], 1.5),
        ([("mm", 9, 10), ("add", 9, 10)], [("mm", 9, 12), ("add", 9, 26.6)], 1.2),  # add: another program
        ([("mm", 9, 10), ("add", 9, 10)], [("mm", 9, 12), ("add", 9, 26.4)], 1.92),  # the same one
        ([("mm", 1, 10), ("add", 1, 50)], [("mm", 1, 12), ("sub", 1, 50)], 1.2),
        ([("mm", 1, 10), ("add", 1, 60)], [("mm", 1, 12), ("sub", 1, 20)], 1.0),  # mm is too little of base
        ([("mm", 1, 10), ("add", 1, 50)], [("mm", 1, 12), ("sub", 1, 70)], 1.0),  # and here of new
        ([("mm", 1, 10)], [("add", 1, 10)], 1.0),
    ],
)
def test_the_host_s_pace_is_that_of_what_both_do(base: Any, new: Any, pace: float) -> None:
    assert host_pace(host(*base), host(*new)) == pytest.approx(pace)


def test_hosts_of_other_gpus_or_versions_have_no_pace_in_common() -> None:
    base, new = [("mm", 1, 10)], [("mm", 1, 20)]
    assert host_pace(host(*base), host(*new)) == 2.0
    assert host_pace(host(*base), host(*new, gpu="H100")) == 1.0
    assert host_pace(host(*base), host(*new, torch="2.8")) == 1.0


@pytest.mark.parametrize(
    ("base_ns", "new_ns", "word"),
    [
        (1_000, 1_500, Word.SAME),  # short: medians differ by half a microsecond
        (1_000, 1_501, Word.SLOWER),
        (1_501, 1_000, Word.FASTER),
        (100_000, 104_900, Word.SAME),
        (100_000, 105_100, Word.SLOWER),
        (105_100, 100_000, Word.FASTER),
    ],
)
def test_times_differ_by_a_share_and_by_more_than_medians_of_short_kernels_do(
    base_ns: float, new_ns: float, word: Word
) -> None:
    sides = [WorkSide(4, 4 * ns, 0, ns, ("k",), "", "") for ns in (base_ns, new_ns)]
    row: Any = SimpleNamespace(base=sides[0], new=sides[1], kind="compute")
    assert _by_time(row, new_ns / base_ns, ([], [])) is word
