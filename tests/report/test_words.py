"""Names and spans as people say them."""

from __future__ import annotations

import pytest

from traceanalyzer.model.short_names import marked_functions, plain_kernel, short_ops
from traceanalyzer.report.words import format_span, in_words


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (
            "void at::native::reduce_kernel<512, f(int)>(float*, T<(K)2>)",
            "at::native::reduce_kernel<512, f(int)>",
        ),
        ("void at::native::(anonymous namespace)::cat<(K)0>", "at::native::cat<(K)0>"),
        ("void (anonymous namespace)::elementwise<int>(int)", "elementwise<int>"),
        ("Memset (Device)", "Memset (Device)"),
        ("odd)", "odd)"),
        ("(all)", "(all)"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_what_tells_it_from_others(name: str, plain: str) -> None:
    assert plain_kernel(name) == plain


def test_a_span_names_its_unit_once() -> None:
    assert format_span(2_970_000, 3_730_000) == "2.97 to 3.73 ms"
    assert format_span(821_000, 1_020_000) == "821 µs to 1.02 ms"
    assert format_span(5_000_000, 60_000_000, "of") == "5.00 of 60.0 ms"
    assert format_span(-400, 500_000) == "-400 ns to 500 µs"


def test_causes_and_ops_are_in_words() -> None:
    assert in_words("idle:in-graph") == "inside a CUDA graph"
    assert in_words("idle:host-code") == "host code between ops"
    assert in_words("copy_h2d") == "copy to the device"
    engine = "autograd::engine::evaluate_function: "
    assert short_ops(f"{engine}MmBackward0, aten::mm, {engine}x") == "MmBackward0, aten::mm, x"


def test_a_function_is_told_from_a_word_of_the_sentence() -> None:
    said = "a.py(45): step takes 1 ms a step, at a/b.py(7): <lambda> and c.py(8): run, in d.py(9): h()"
    told = "a.py(45): step() takes 1 ms a step, at a/b.py(7): <lambda> and c.py(8): run(), in d.py(9): h()"
    assert marked_functions(said) == told
