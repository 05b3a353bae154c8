"""What leaves a trace when it is scrubbed, and what must stay."""

import json

import pytest

from capture.scrub import Scrubber

SCRUBBER = Scrubber(
    trace_name="bad.json",
    hosts=frozenset({"gpu-box-17"}),
    users=frozenset({"mariam"}),
    project="/srv/checkout",
    folders=("/home/mariam le blanc",),
)


@pytest.mark.parametrize(
    ("name", "scrubbed"),
    [
        ("/usr/lib/python3.12/site-packages/torch/_ops.py(12): call", "torch/_ops.py(12): call"),
        ("/opt/venv/lib/python3.11/enum.py(3): get", "enum.py(3): get"),
        ("/srv/checkout/capture/session.py(9): record", "capture/session.py(9): record"),
        ("/home/mariam le blanc/secret/train.py(7): main", "train.py(7): main"),
        ("/data/project x/lib/python3.13/dist-packages/numpy/a.py(1): f", "numpy/a.py(1): f"),
        ("a.py(1): f;/data/private/b.py(2): g", "a.py(1): f;b.py(2): g"),
        ("C:\\Users\\mariam\\train.py(4): main", "train.py(4): main"),
        ("gpu-box-17_4242.1700", "host_4242.1700"),
        ("worker of mariam", "worker of user"),
    ],
)
def test_removes_what_tells_the_machine(name: str, scrubbed: str) -> None:
    assert SCRUBBER.text(name) == scrubbed


@pytest.mark.parametrize(
    "name",
    [
        "aten::addmm",
        "Torch-Compiled Region: 0/0",
        "torch/nn/modules/linear.py(125): forward",
        "nn.Module: Linear_0",
        "Memcpy DtoD (Device -> Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, char*>",
        "ProfilerStep#3",
        "a / b",
        "x:\n y",
    ],
)
def test_keeps_all_other_names(name: str) -> None:
    assert SCRUBBER.text(name) == name


def test_trace_keeps_its_numbers_and_its_structure() -> None:
    text = (
        '{"traceName": "/home/mariam/x.json", "host_name": "gpu-box-17", "PT_PROFILER_JOB_NAME": "m-7",\n'
        '"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n'
        '{"ph": "X", "name": "/data/one/a.py(1): f", "ts": 4337603360250.463, "dur": 1.100, "args": {}},\n'
        '{"ph": "X", "name": "say \\"hi\\" \\\\ /data/private/b", "ts": 1.10, "dur": 2.0},\n'
        '{"ph": "X", "name": "A:\\"quoted\\"", "ts": 3.0, "dur": 2.0}]}'
    )
    scrubbed = SCRUBBER.trace(text)
    loaded = json.loads(scrubbed)
    assert loaded["traceName"] == "bad.json"
    assert loaded["host_name"] == loaded["PT_PROFILER_JOB_NAME"] == "scrubbed"
    assert [e["name"] for e in loaded["traceEvents"]] == ["a.py(1): f", 'say "hi" \\ b', 'A:"quoted"']
    assert '"ts": 4337603360250.463, "dur": 1.100' in scrubbed
    assert '"ts": 1.10, "dur": 2.0' in scrubbed
    assert "mariam" not in scrubbed


def test_trace_with_bad_escapes_passes_through() -> None:
    text = '{"traceEvents": [{"name": "C:\\src\\x"}, {"name": "a "quoted" name"}]}'
    assert SCRUBBER.trace(text).count("quoted") == 1


def test_common_words_are_no_names() -> None:
    scrubber = Scrubber(trace_name="t", hosts=frozenset({"localhost"}), users=frozenset({"root", "ann"}))
    assert scrubber.text("root of localhost, ann") == "root of localhost, ann"
