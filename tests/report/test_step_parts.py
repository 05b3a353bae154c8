"""Names of the parts of a step where those of functions say nothing."""

from collections.abc import Callable

import pytest

from tests.support.region_programs import CodeProgram, regions_of
from traceanalyzer.model.short_names import function_words
from traceanalyzer.report.step_parts import region_words, shown_name

LAYER, WRAPPER = "modeling_llama.py(10): forward", "generic.py(10): wrapper"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("llama/modeling_llama.py(62): forward", "modeling_llama.py: forward()"),
        ("train.py(9): __call__", "train.py: __call__()"),
        ("train.py(9): <lambda>", "train.py: <lambda>()"),
        ("train.py(9): forward_features", "forward_features()"),
        ("train.py(9): step", "step()"),
        ("aten::mm", "aten::mm"),
    ],
)
def test_functions_without_a_telling_name_have_their_file(frame: str, words: str) -> None:
    assert function_words(frame) == words


def words_of(body: Callable[[CodeProgram], None]) -> dict[str, str]:
    """Name of each region -> its words; after the body, each of three steps has ops that are in no function."""
    program = CodeProgram()
    for _ in range(3):
        body(program)
        program.ops(["aten::add", "aten::sum"])
        program.end_step()
    regions = regions_of(program)
    return {name: region_words(regions, node) for node, name in enumerate(regions.tree.name)}


def layers(program: CodeProgram, module: str = "LlamaMLP", inner: str = "") -> None:
    """Six calls of a module, each through a wrapper, with half of its time in an inner module, if any."""
    for _ in range(6):
        begin = program.now
        program.op("aten::mm")
        if inner:
            inside = program.now
            program.op("aten::linear")
            program.module(inner, inside)
        program.function("forward", begin, "modeling_llama.py")
        program.module(module, begin)
        program.function("wrapper", begin, "generic.py")


def test_forward_is_shown_by_its_module() -> None:
    words = words_of(layers)
    assert (words[LAYER], words[WRAPPER]) == ("LlamaMLP", "LlamaMLP")
    assert [name for name in words.values() if " x " in name] == []


def test_wrapper_of_the_same_class_is_shown_by_its_file() -> None:
    words = words_of(lambda program: layers(program, "Linear", "Linear"))
    assert words[LAYER] == "modeling_llama.py: forward()"
    assert words_of(lambda program: layers(program, "Linear", "GELU"))[LAYER] == "Linear"


def test_repeats_of_a_module_are_shown_by_its_class() -> None:
    """Six times a function that reads a config for 1 us, and a wrapper around a module."""

    def body(program: CodeProgram) -> None:
        for _ in range(6):
            begin = program.now
            program.pause(100)
            program.function("__getattribute__", begin, "config.py")
            layers_begin = program.now
            program.ops(["aten::mm", "aten::gelu", "aten::relu"])
            program.function("forward", layers_begin, "modeling_llama.py")
            program.module("LlamaMLP", layers_begin)
            program.function("wrapper", layers_begin, "generic.py")

    words = words_of(body)
    assert [name for name in words.values() if " x " in name] == ["6 x LlamaMLP"]


def test_long_functions_lose_their_folder_before_their_line() -> None:
    program = CodeProgram()
    for _ in range(3):
        begin = program.now
        program.ops(["aten::mm", "aten::add"])
        program.function("evaluate", begin, "package/folder/metrics.py")
        program.end_step()
    regions = regions_of(program)
    (node,) = (node for node, kind in enumerate(regions.tree.kind) if kind == "function")
    shown = [shown_name(regions, node, width) for width in (50, 30, 12)]
    assert shown == ["package/folder/metrics.py(10): evaluate()", "metrics.py(10): evaluate()", "evaluate()"]
