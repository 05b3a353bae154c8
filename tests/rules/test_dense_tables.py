"""Dense gradients of several embeddings at once."""

from __future__ import annotations

from tests.rules.programs import US, found
from tests.support.recommenders import WIDTH, Training, recommender
from tests.support.trace_builder import TraceBuilder


def tables(*rows: int, looked_up: int = 4_096) -> TraceBuilder:
    """Three steps in which each table gets a dense gradient, and SGD passes over all of them."""
    run = Training(400 * US)
    for number in range(3):
        run.step(number)
        for count in rows:
            run.op("aten::mm", [looked_up, WIDTH], [WIDTH, 512])
            start = run.now
            run.now += 5 * US
            run.op("aten::fill_", [count, WIDTH], [], kernels=(300 * US,))
            run.op("aten::sort", [looked_up])
            dims = ([looked_up, WIDTH], [looked_up], [], [], [])
            scalars = ("", "", str(count), "-1", "False")
            run.args("aten::embedding_dense_backward", start, run.now - start, dims, scalars)
        start, shapes = run.now + 5 * US, [[count, WIDTH] for count in rows]
        run.now = start
        for shape in shapes:
            run.args("torch::autograd::AccumulateGrad", run.now, US, [shape])
            run.now += 2 * US
        run.op("aten::_foreach_add_", shapes, shapes, [], kernels=(200 * US,) * 4)
        run.trace.annotation("Optimizer.step#SGD.step", start, run.now - start)
    return run.trace


def test_largest_table_is_named_with_its_share() -> None:
    for rows in ((1_000_000, 100_000), (100_000, 1_000_000)):
        (dense,) = found(tables(*rows), "dense-gradient")
        assert (dense.count, dense.evidence["rows"]) == (3 * 2, 1_000_000)
        assert dense.evidence["touched_share"] == 4_096 / 1_000_000
        assert "for an embedding of 1,000,000 rows" in dense.message


def test_without_shapes_what_forward_adds_is_no_other_gradient() -> None:
    """An addition that takes more than twice the fill, in backward or before it."""
    found_in = []
    for around in ("autograd::engine::evaluate_function: AddBackward0", "my::loss"):
        trace = recommender(shapes=False, lookup_us=6, summed_us=700, long_list=True)
        for event in trace.events:
            if event["name"].endswith("EmbeddingBackward0"):
                event["name"] = around
        found_in.append(len(found(trace, "dense-gradient")))
    assert found_in == [0, 1]


def test_other_processes_may_look_up_more_rows() -> None:
    trace = tables(1_000_000)
    (alone,) = found(trace, "dense-gradient")
    trace.launch("cudaLaunchKernel", 10 * US, 2 * US, 9_000)
    trace.kernel(20 * US, 30 * US, 9_000, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", stream=20)
    (beside,) = found(trace, "dense-gradient")
    assert [one.confidence.value for one in (alone, beside)] == ["high", "medium"]
    assert alone.cost_ns == beside.cost_ns
