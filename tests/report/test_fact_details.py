"""What facts count: each on a small trace, with the numbers worked out by hand."""

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.report.facts import Fact, facts_of

US = 1_000
COPY = "Memcpy DtoD (Device -> Device)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"


class Program(TraceBuilder):
    """Ops that launch kernels, whose correlations count up."""

    def runs(
        self, name: str, start: int, dur: int, *work: tuple[str, int, int], tid: int = 1000, **launch: str
    ) -> None:
        """An op from `start` on, times in us, and (kernel, begin, duration) of all that it launches."""
        self.op(name, start * US, dur * US, tid=tid)
        for place, (kernel, begin, length) in enumerate(work):
            number, copies = len(self.events), kernel.startswith("Memcpy")
            call = launch.get("call", "cudaMemcpyAsync" if copies else "cudaLaunchKernel")
            self.launch(call, (start + 2 + 3 * place) * US, 2 * US, number, tid=tid)
            (self.memcpy if copies else self.kernel)(begin * US, length * US, number, name=kernel)

    def asks(self, start: int, tid: int = 1000) -> None:
        name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
        self.op(name, start * US, US, category="cuda_runtime", tid=tid)

    def facts(self, name: str) -> list[Fact]:
        return [fact for fact in facts_of(Analysis(self.load())) if fact.name == name]


def linears() -> Program:
    """In a step: two linears, of which one copies its bias; a product of two kernels; a batched one; none."""
    trace = Program()
    trace.step(0, 100 * US, 900 * US)
    trace.gpu_annotation("ProfilerStep#0", 30 * US, 500 * US, external_id=1)
    trace.runs("aten::sort", 10, 20, ("early", 40, 50))
    trace.op("aten::linear", 110 * US, 40 * US)
    trace.runs("aten::addmm", 120, 20, (COPY, 200, 5), ("gemm", 210, 50))
    trace.op("aten::linear", 160 * US, 40 * US)
    trace.runs("aten::addmm", 170, 20, ("gemm", 270, 30))
    trace.op("aten::matmul", 210 * US, 30 * US)
    trace.runs("aten::mm", 215, 20, ("gemm2", 310, 30), ("splitk", 350, 10))
    trace.runs("aten::baddbmm", 250, 20, ("gemm3", 370, 30), ("gemm4", 410, 30))
    trace.runs("aten::addmm", 280, 10)
    return trace


def test_chain_leads_from_outermost_to_kernel_counting_calls() -> None:
    trace = linears()
    first, second, third = trace.facts("dispatch-chain")
    assert first.text == (
        "ProfilerStep#0 900 µs (760 µs self) > aten::linear 40.0 µs (20.0 µs self) > aten::addmm 20.0 µs (16.0 µs "
        "self) > cudaLaunchKernel 2.00 µs (2.00 µs self) > gemm 50.0 µs on the GPU"
    )
    times = {"gpu_ns": 85 * US, "kernel_ns": 50 * US}
    assert first.values == {"op": "aten::linear", "calls": 2, "depth": 4, **times}
    assert [trace.events[event]["name"] for event in first.event_ids] == [
        "ProfilerStep#0",
        "aten::linear",
        "aten::addmm",
        "cudaLaunchKernel",
        "gemm",
    ]
    assert (second.values["op"], second.values["calls"]) == ("aten::baddbmm", 1)
    assert third.values["op"] == "aten::sort"


def test_work_without_an_op_has_no_chain() -> None:
    trace = Program()
    trace.launched((0, 5 * US), (10 * US, 50 * US), 1)
    trace.runs("aten::mm", 100, 20, ("gemm", 130, 10))
    assert [fact.values["op"] for fact in trace.facts("dispatch-chain")] == ["aten::mm"]


def test_what_products_become_is_counted_by_what_was_asked_for() -> None:
    assert [dict(fact.values) for fact in linears().facts("matmul-resolved")] == [
        {"op": "aten::linear", "aten::addmm": 2},
        {"op": "aten::matmul", "aten::mm": 1},
    ]


def test_biased_gemms_are_listed_by_launching_op() -> None:
    trace = linears()
    both = trace.facts("addmm-fusion")
    assert [dict(fact.values) for fact in both] == [
        {"op": "aten::addmm", "calls": 2, "copies": 1, "kernels_per_call": 1.0},
        {"op": "aten::baddbmm", "calls": 1, "copies": 0, "kernels_per_call": 2.0},
    ]
    assert "1 of 2 copy the bias before the product" in both[0].text
    assert "2.0 kernels a call" in both[1].text
    other = Program()
    other.runs("aten::addmm", 0, 20, ("Memcpy HtoD (Pageable -> Device)", 30, 5), ("gemm", 40, 10))
    assert [fact.values["copies"] for fact in other.facts("addmm-fusion")] == [0]


def test_only_same_thread_question_makes_a_launch_adaptive() -> None:
    """Two threads ask and launch in turn; a third one asks in one op and launches in the next."""
    trace = Program()
    trace.runs("aten::sum", 0, 40, ("a", 100, 5), tid=11)
    trace.asks(10, tid=11)
    trace.launched((20 * US, 2 * US), (110 * US, 5 * US), 501, tid=11)
    trace.op("aten::cumsum", 5 * US, 40 * US, tid=12)
    trace.asks(12, tid=12)
    trace.launched((22 * US, 2 * US), (120 * US, 5 * US), 502, tid=12)
    trace.op("aten::sort", 50 * US, 10 * US, tid=13)
    trace.asks(52, tid=13)
    trace.runs("aten::mul", 65, 10, ("b", 130, 5), tid=13)
    (one,) = trace.facts("adaptive-launches")
    assert one.values == {"launches": 4, "adaptive": 2}
    assert {"aten::sum", "aten::cumsum"} == set(one.text.partition("; most by ")[2].split(", "))


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_hotspot_counts_launched_work_and_longest_kernel(steps: int) -> None:
    """Without steps all counts, the 30 us that run before them, too."""
    trace = Program()
    trace.runs("aten::mm", 10, 20, ("gemm", 40, 30))
    for step in range(steps):
        trace.step(step, (100 + 200 * step) * US, 200 * US)
    for step in range(max(steps, 1)):
        at = 100 + 200 * step
        trace.runs("aten::mm", at + 10, 20, ("gemm", at + 50, 20), ("gemm", at + 80, 40), ("gemm", at + 130, 10))
    (one,) = trace.facts("hotspot")
    assert (one.values["calls"], one.values["kernels"], one.values["gpu_ns"]) == {
        0: (2, 4, 100 * US),
        1: (1, 3, 70 * US),
        2: (2, 6, 140 * US),
    }[steps]
    assert f"in {max(steps, 1)} step{'s' * (steps == 2)}; Nsight" in one.text
    (event,) = one.event_ids
    assert (trace.events[event]["name"], trace.events[event]["dur"]) == ("gemm", 40.0)


def test_kernels_without_an_op_are_their_own_calls() -> None:
    trace = Program()
    for number in range(3):
        trace.launch("cudaLaunchKernel", 10 * number * US, 5 * US, number + 1)
        trace.kernel((100 + 20 * number) * US, 10 * US, number + 1, name="gemm")
    (one,) = trace.facts("hotspot")
    assert (one.values["calls"], one.values["kernels"]) == (3, 3)


def test_each_region_has_its_graph_and_previous_work() -> None:
    """Of two entries with a launch after 30 and 50 us; and of one that launches nothing, all of it."""
    trace = Program()
    for number, (start, before) in enumerate(((0, 30), (200, 50))):
        trace.annotation("Torch-Compiled Region: 0/0", start * US, 100 * US)
        trace.op("## Call CompiledFxGraph fabc ##", (start + 10) * US, 80 * US)
        trace.launch("cudaStreamIsCapturing", (start + 12) * US, US, 900 + number)
        trace.launched(((start + before) * US, 5 * US), ((start + 60) * US, 20 * US), number + 1)
    trace.annotation("Torch-Compiled Region: 1/0", 400 * US, 60 * US)
    trace.op("## Call CompiledFxGraph fdef ##", 410 * US, 40 * US)
    one, two = trace.facts("compiled-region")
    assert (one.values["calls"], one.values["prologue_ns"], one.values["hash"]) == (2, 40 * US, "fabc")
    assert (two.values["calls"], two.values["prologue_ns"], two.values["hash"]) == (1, 60 * US, "fdef")
    assert "region 0/0, entered 2 times, 100 µs each, 40.0 µs before" in one.text


def test_server_steps_differ_by_batch_and_launches() -> None:
    trace = Program()
    marks = [("step[DECODE bs=8]", 30), ("step[DECODE bs=1]", 10), ("step[EXTEND bs=2]", 50)]
    for number, (mark, gpu) in enumerate(marks):
        at = 100 * number
        trace.annotation(mark, at * US, 80 * US)
        trace.annotation(mark, (at + 1) * US, 70 * US)
        trace.launched(((at + 5) * US, 5 * US), ((at + 12) * US, gpu * US), number + 1)
    facts = trace.facts("serving-steps")
    assert [fact.text for fact in facts] == [
        "decode of 1 request: 1 steps, median 80.0 µs on the CPU, 10.0 µs of GPU work; "
        "20.0 µs from its end to the next, the GPU idle for 20.0 µs of it",
        "decode of 8 requests: 1 steps, median 80.0 µs on the CPU, 30.0 µs of GPU work; "
        "20.0 µs from its end to the next, the GPU idle for 20.0 µs of it",
        "prefill of 2 requests: 1 steps, median 80.0 µs on the CPU, 50.0 µs of GPU work",
    ]


def test_tokens_of_a_server_are_of_the_time_to_the_next_mark() -> None:
    trace = Program()
    marks = [
        "execute_context_2(6000)_generation_0(0)",
        "execute_context_1(3000)_generation_4(4)",
        "execute_context_0(0)_generation_8(8)",
        "step[DECODE bs=8 toks=16]",
        "step[DECODE bs=8 toks=16]",
    ]
    for number, mark in enumerate(marks):
        trace.annotation(mark, number * 1_000 * US, 400 * US)
        trace.launch("cudaLaunchKernel", (number * 1_000 + 5) * US, 5 * US, number + 1)
        trace.kernel((number * 1_000 + 100) * US, 500 * US, number + 1)
    decode, mixed, prefill = (fact.values for fact in trace.facts("serving-steps"))
    # 8 and 16 tokens in 1 ms each, for 8 requests
    assert (decode["new_tokens_per_s"], decode["token_ns"]) == (12_000, 666_667)
    assert (mixed["prompt_tokens_per_s"], mixed["new_tokens_per_s"]) == (3_000_000, 4_000)
    assert (prefill["prompt_tokens_per_s"], prefill["token_ns"]) == (6_000_000, 167)
    assert {(one["between_ns"], one["between_idle_ns"]) for one in (decode, mixed, prefill)} == {(600 * US, 400 * US)}


def test_server_step_without_requests_or_number_is_known() -> None:
    trace = Program()
    for number, mark in enumerate(("step[DECODE bs=0]", "step[EXTEND toks=7]")):
        trace.annotation(mark, 100 * number * US, 80 * US)
    trace.runs("aten::mm", 300, 20, ("gemm", 330, 10))
    facts = trace.facts("serving-steps")
    assert [fact.text.partition(": ")[0] for fact in facts] == ["decode of 0 requests", "prefill"]
    assert [fact.values["batch"] for fact in facts] == [0, None]


def test_chain_is_of_a_usual_run_of_the_costliest_kernel() -> None:
    """It runs 10, 90 and 30 us: 30 is the median; another kernel takes less in all."""
    trace = Program()
    for place, took in enumerate((10, 90, 30)):
        trace.runs("aten::mm", 100 * place, 40, ("gemm", 100 * place + 50, took))
    trace.runs("aten::mm", 400, 40, ("splitk", 450, 100))
    (one,) = trace.facts("dispatch-chain")
    assert (one.values["calls"], one.values["gpu_ns"], one.values["kernel_ns"]) == (4, 230 * US, 30 * US)


@pytest.mark.parametrize(
    ("other", "said"), [(REDUCE, "the others wait for the rank"), ("gemm", "Nsight Compute shows"), (COPY, None)]
)
def test_kernel_profiler_skips_communication_and_copies(other: str, said: str | None) -> None:
    """An op reduces for 40 us, which goes by the collective's name, and does something else for 60 us."""
    trace = Program()
    trace.runs("aten::mm", 0, 40, (REDUCE, 50, 40), (other, 100, 60))
    one = trace.facts("hotspot")[0]
    assert one.text.partition("; ")[2].startswith(said or "")
    assert ("; " in one.text) is (said is not None)


def test_of_several_waits_of_the_profiler_the_last_one_is_told() -> None:
    """One before the first op, and two behind all; a wait within an op is the program's."""
    trace = Program()
    trace.launch("cudaDeviceSynchronize", 0, 9 * US, 90)
    trace.runs("aten::mm", 100, 50, ("gemm", 130, 10))
    trace.launch("cudaDeviceSynchronize", 120 * US, 25 * US, 91)
    for number, (at, took) in enumerate(((200, 30), (300, 7))):
        trace.launch("cudaDeviceSynchronize", at * US, took * US, 92 + number)
    (one,) = trace.facts("profiler-synchronisation")
    assert one.values == {"total_ns": 7 * US}
    assert one.text == "cudaDeviceSynchronize of 7.00 µs at the end is the profiler's own"
