"""How near `compare` is to the truth over recordings whose difference is known: noise, pairs, compilers, jobs.

usage: python -m benchmarks.compare TRACES [SECTION...]        sections: noise pairs compiled public jobs cost

TRACES has folders of recordings with `NAME.meta.json` beside each, which holds `unprofiled_step_ms`.
"""

from __future__ import annotations

import re
import statistics
import sys
from contextlib import suppress
from itertools import permutations

from benchmarks.compare_cost import cost
from benchmarks.compared_traces import Traces
from traceanalyzer.comparison.result import Comparison, Row, Word

# What differs between bad and fixed, as a fault's rule or the op that shows it.
PLANTED = {
    "pairs": {
        "addmm_copy": "hidden-dtod-copy|addmm",
        "contended": "kernel-variance",
        "cpu_roundtrip": "host-round-trip|exposed-copy|implicit-sync|aten::to",
        "dataloader": "dataloader",
        "device_sync": "long-device-sync|cudaDeviceSynchronize",
        "fp32_gemm": "no-tensor-cores|mm|linear",
        "gc_pause": "host-gap",
        "graph_break": "compile|graph|Region",
        "h2d_in_compute": "exposed-copy|copy_h2d|aten::to|aten::copy_",
        "item_sync": "implicit-sync|item",
        "launch_bound": "launch-bound|repeated-calls|launches",
        "low_occupancy": "low-occupancy|cumsum",
        "malloc_thrash": "allocator-thrash",
        "nchw_conv": "layout-conversion",
        "nonzero": "implicit-sync|nonzero|index",
        "optimizer_loop": "unfused-optimizer|Optimizer|repeated-calls",
        "pageable_h2d": "exposed-copy|copy_h2d",
        "python_between": "host-gap",
        "recompile": "compile|recompil",
        "unfused_pointwise": "unfused-pointwise",
    },
    "pairs4": {
        "moe_loop": "implicit-sync|repeated-calls|launch-bound|index",
        "small_h2d": "repeated-calls|launch-bound|copy_h2d|tensor",
        "float64_leak": "float64-math|dtype|double|mm",
        "checkpointing": "recomputation: checkpoint",
        "amp_scaler": "implicit-sync|gradient-scaling",
        "effnet_nchw": "layout-conversion|conv",
        "norm_upcast": "unfused-pointwise|rms_norm|dtype",
        "gpt2_attn_eager": "hand-written-attention|softmax|attention",
        "metric_checks": "torchmetrics",
        "anomaly_mode": "anomaly",
        "cpu_index": "exposed-copy|implicit-sync|index",
        "logits_cpu": "host-round-trip|exposed-copy|implicit-sync",
        "sample_loop": "repeated-calls|launch-bound",
        "unbatched_generate": "repeated-calls|launch-bound|times as often in BASE",
        "dense_embedding": "dense-gradient|embedding",
        "zero_grad": "zeroed-gradients|unfused-optimizer|repeated-calls|zero_",
    },
    "third": {
        "attention_math": "hand-written-attention|softmax",
        "bert_fp32": "no-tensor-cores|linear|mm",
        "clip_loop": "implicit-sync|repeated-calls|item",
        "decode_sync": "implicit-sync|item|any|is_nonzero",
        "kv_cat": "strided-copy|cat",
        "numpy_metric": "host-round-trip|exposed-copy|implicit-sync",
        "print_loss": "implicit-sync|item",
        "resnet18": "dataloader",
        "streams_serial": "",
        "tiny_batch": "repeated-calls|launch-bound",
        "transpose_copies": "strided-copy|layout|transpose|contiguous|clone",
        "weight_cast": "dtype-casts|aten::to|copy_",
    },
}
_SURE = 0.10  # of the step, for the verdict's sign to be asked after


def noise(traces: Traces) -> None:
    """The same program again and again, and known changes of it."""
    for program, changes in (("gemm", ("clone", "wider")), ("resnet", ("item", "fp32"))):
        again = [f"noise/{program}.a{i}" for i in range(1, 5)]
        told, rows, all_rows, exact, sums = [], 0, 0, 0, True
        for base, new in permutations(again, 2):
            found = traces.compare(base, new)
            told.append((str(found.axes.step.word), str(found.axes.device.word)))
            rows += sum(_sided(row) for row in found.rows)
            all_rows += len(found.rows)
            exact += sum(one.word is not Word.SAME for one in found.axes.exact)
            sums &= _sums(found)
        wrong = sum(word in ("slower", "faster") for pair in told for word in pair)
        print(f"{program}: {len(told)} ordered pairs of the same: {wrong} verdicts slower or faster on an axis;")
        print(f"  rows with one: {rows} of {all_rows}; counters that differ: {exact}; waterfalls sum: {sums}")
        for change in changes:
            for base in again:
                found = traces.compare(base, f"noise/{program}.{change}")
                counters = [
                    f"{one.counter} {one.base:g} -> {one.new:g} ({', '.join(one.where)})"
                    for one in found.axes.exact
                    if one.word is not Word.SAME and one.counter != "ops"
                ]
                print(f"  {base[6:]} -> {change}: {found.verdict.headline[:110]}")
                print(f"      {counters[:3]}; device {found.axes.device.word}; {_shown(found.rows[0])}; {_sums(found)}")


def _sided(row: Row) -> bool:
    return row.word in (Word.SLOWER, Word.FASTER)


def _shown(row: Row) -> str:
    return f"{row.word} {row.outer or row.region}/{row.op}"


def _sums(found: Comparison) -> bool:
    fall = found.waterfall
    return fall is not None and fall.base_ns + sum(part.delta_ns for part in fall.parts) == fall.new_ns


def pairs(traces: Traces) -> None:
    """Bad against fixed, and back: what is named first, and the step beside its truth."""
    errors, signs, asked, unknown, named, every, sums, back, got = [], 0, 0, [], 0, 0, True, 0, []
    for folder, planted in PLANTED.items():
        for name, pattern in planted.items():
            sides = f"{folder}/{name}.bad", f"{folder}/{name}.fixed"
            found = traces.compare(*sides)
            reverse = traces.compare(*reversed(sides))
            sums &= _sums(found) and _sums(reverse)
            true = traces.true_ms(sides[1]) / traces.true_ms(sides[0]) - 1
            step, first = found.axes.step, (found.verdict.because or ("",))[0]
            hit = bool(re.search(pattern, first)) if pattern else not re.search("is gone|is new", first)
            named, every = named + hit, every + 1
            errors.append(abs(step.difference - true) * 100)
            back += abs(1 / (1 + reverse.axes.step.difference) - 1 - step.difference) < 1e-6
            if abs(true) > _SURE:
                asked += 1
                signs += (step.word is Word.SLOWER) == (true > 0) and _told(step.word)
                unknown += [f"{folder}/{name}{traces.overlap(*sides)}"] if not _told(step.word) else []
            got += [(fault.said_share, fault.got_share, -true) for fault in found.faults if fault.got_share is not None]
            mark = " " if hit else "x"
            print(
                f"{mark} {folder}/{name:20} true {true:+7.1%} said {step.difference:+7.1%} {step.word:8} {first[:100]}"
            )
    print(f"planted difference named first: {named} of {every}")
    print(f"sign of {asked} verdicts where the truth is over 10 %: right {signs}, unknown {', '.join(unknown)}")
    mean, median = statistics.mean(errors), statistics.median(errors)
    near = sum(error <= 10 for error in errors) / len(errors)
    print(f"step's difference: mean error {mean:.1f}, median {median:.1f} points, {near:.0%} within 10")
    print(f"all waterfalls sum to the ns: {sums}; the way back is the inverse: {back} of {every}")
    if got:
        off = [abs(gained - true) * 100 for _, gained, true in got]
        said = [abs(told - true) * 100 for told, _, true in got]
        print(f"one fault gone: {len(got)}; error {statistics.median(said):.1f} said, {statistics.median(off):.1f} got")


def _told(word: Word) -> bool:
    return word in (Word.SLOWER, Word.FASTER)


_COMPILED = (
    ("real/gpt2_train.eager", "real/gpt2_train.compile"),
    ("seeds/4096_bf16_warm_eager", "seeds/4096_bf16_warm_compile"),
    ("seeds/4096_bf16_cold_eager", "seeds/4096_bf16_warm_compile"),
    ("seeds/64_bf16_warm_eager", "seeds/64_bf16_warm_compile"),
    ("seeds/4096_bf16_warm_compile", "seeds/4096_bf16_warm_compile_max-autotune"),
    ("seeds/4096_bf16_warm_compile", "seeds/4096_bf16_warm_compile_reduce-overhead"),
)
_PUBLIC = (
    ("public/kineto_v100_resnet50_nw0", "public/kineto_v100_resnet50_nw4"),
    ("public/hta_v100_ns", "public/hta_a100_nccl"),  # ResNet-50 both, the second one of several ranks
    ("public/tracelens_h100_bert_small", "public/tracelens_mi300_bert_small"),
)
_JOBS = (
    ("jobs/lightllm_base", "jobs/lightllm_overlap"),
    ("jobs/ao_ep_moe/ref", "jobs/ao_ep_moe/syncless"),
    ("jobs/torchrec_a2a", "jobs/torchrec_sleep"),
)


def _told_whole(traces: Traces, base: str, new: str) -> None:
    found = traces.compare(base, new)
    print(f"{base} -> {new}\n  {found.verdict.headline}")
    for reason in found.verdict.because:
        print(f"    {reason[:150]}")
    counters = [
        f"{one.counter} {one.base:.6g} -> {one.new:.6g}" for one in found.axes.exact if one.word is not Word.SAME
    ]
    print("  exact:", "; ".join(counters))
    step = found.axes.step
    if step and step.base_cpu_ns and step.new_cpu_ns:
        print(f"  CPU: {step.base_cpu_ns / 1e6:.3f} -> {step.new_cpu_ns / 1e6:.3f} ms a step")
    fall = found.waterfall
    if fall:
        print(
            "  waterfall:",
            {group: [round(ns / 1e6, 3) for ns in of] for group, of in fall.groups.items()},
            "sums",
            _sums(found),
        )
    print("  rungs:", {rung: f"{share:.0%}" for rung, share in found.rungs.items()}, "notes:", found.notes)
    gemms = [
        row
        for row in found.rows
        if row.base and row.new and all("nvjet" in side.kernels[0] for side in (row.base, row.new))
    ]
    for row in gemms[:3]:
        print(f"  GEMM by {row.rung}: {row.base.kernels[0]} and {row.new.kernels[0]}, {row.word}")


def compiled(traces: Traces) -> None:
    """Eager against torch.compile."""
    for base, new in _COMPILED:
        _told_whole(traces, base, new)
        with suppress(KeyError):
            print(f"  truth: {traces.true_ms(new) / traces.true_ms(base) - 1:+.1%}")


def public(traces: Traces) -> None:
    """Other people's recordings: GPUs and loaders."""
    for base, new in _PUBLIC:
        _told_whole(traces, base, new)


def jobs(traces: Traces) -> None:
    """Jobs of several ranks."""
    for base, new in _JOBS:
        _told_whole(traces, base, new)
        for rank in traces.compare(base, new).ranks:
            print("   ", rank)


SECTIONS = {one.__name__: one for one in (noise, pairs, compiled, public, jobs, cost)}


def main(arguments: list[str]) -> None:
    """Print the chosen sections, or all."""
    traces = Traces(arguments[0])
    for name in arguments[1:] or list(SECTIONS):
        print(f"--- {name}")
        SECTIONS[name](traces)


if __name__ == "__main__":
    main(sys.argv[1:])
