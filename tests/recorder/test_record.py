"""`traceanalyzer record` on real programs on the CPU: what is recorded, what is said, and that nothing else changes."""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.recorder.programs import LOOP, left_in, needs_torch, recorded, steps_of, trace_of
from traceanalyzer.model.step_times import RECORDING

pytestmark = needs_torch


def test_a_plain_loop_is_recorded_timed_and_diagnosed(tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=30, after="pass"), "--shapes", real=True)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert "trace.json.gz: 3 steps recorded" in done.stderr
    assert "\nStep   " in done.stderr.partition("3 steps recorded")[2]
    assert left_in(tmp_path) == ["trace.json.gz"]
    told = trace_of(tmp_path / "trace.json.gz")[RECORDING]
    assert len(told["before_ms"]) == len(told["after_ms"]) == 3
    assert all(0 < ms < 10_000 for ms in told["before_ms"] + told["after_ms"])
    assert told["unit"] == "optimizer step"
    assert told["command"] == ["train.py"]
    assert told["torch"] == version("torch")
    assert steps_of(tmp_path / "trace.json.gz") == 3


@pytest.mark.parametrize(
    ("program", "unit"),
    [
        (
            "import torch\nmodel = torch.nn.Linear(8, 8)\nwith torch.no_grad():\n"
            "    for _ in range(40): model(torch.ones(4, 8))\n",
            "forward pass",
        ),
        pytest.param(  # the first of two optimizers
            "import torch\na, b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)\n"
            "one, two = torch.optim.SGD(a.parameters()), torch.optim.Adam(b.parameters())\n"
            "for _ in range(40):\n    for o, m in ((one, a), (two, b)):\n"
            "        o.zero_grad(); m(torch.ones(4, 8)).sum().backward(); o.step()\n",
            "optimizer step",
            marks=pytest.mark.slow,
        ),
        (  # gradients of four batches are one step
            "import torch\nm = torch.nn.Linear(8, 8)\no = torch.optim.SGD(m.parameters())\n"
            "for _ in range(40):\n    for _ in range(4): m(torch.ones(4, 8)).sum().backward()\n"
            "    o.step(); o.zero_grad()\n",
            "optimizer step",
        ),
        pytest.param(  # a preprocessing module without parameters is no step
            "import torch\nclip, m = torch.nn.ReLU(), torch.nn.Linear(8, 8)\n"
            "for _ in range(40):\n    x = [clip(torch.ones(8)) for _ in range(4)]\n    m(torch.stack(x))\n",
            "forward pass",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_step_is_what_the_program_repeats(program: str, unit: str, tmp_path: Path) -> None:
    done = recorded(tmp_path, program)
    assert done.returncode == 0, done.stderr
    document = trace_of(tmp_path / "trace.json.gz")
    assert document[RECORDING]["unit"] == unit
    names = [event.get("name") for event in document["traceEvents"]]
    of_optimizer = 2 if "one, two" in program else 4 if "range(4)" in program else 1
    assert names.count("aten::linear") == 3 * (of_optimizer if unit == "optimizer step" else 1)


def test_a_failed_program_keeps_its_code_and_recording(tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=40, after="if step == 15: raise ValueError('no')"))
    assert done.returncode == 1
    assert "ValueError: no" in done.stderr
    assert "not timed again after the window" in done.stderr
    told = trace_of(tmp_path / "trace.json.gz")[RECORDING]
    assert len(told["before_ms"]) == 3
    assert told["after_ms"] == []
    assert left_in(tmp_path) == ["trace.json.gz"]


@pytest.mark.parametrize(
    ("steps", "whole", "missing"),
    [
        (11, 0, "ended after 11 steps, and the first recorded step ends with step 12"),
        (13, 2, "ended after 13 steps, so only 2 of 3 steps were recorded, and steps were not timed again"),
        (14, 3, "ended after 14 steps, so steps were not timed again"),
    ],
)
def test_whole_steps_count_on_early_ends(steps: int, whole: int, missing: str, tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=steps, after="pass"))
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert missing in done.stderr
    assert (f"trace.json.gz: {whole} step{'s' * (whole != 1)} recorded" in done.stderr) is bool(whole)
    assert left_in(tmp_path) == ["trace.json.gz"] * bool(whole)
    if whole:
        assert trace_of(tmp_path / "trace.json.gz")[RECORDING]["recorded_steps"] == whole


SLOW = pytest.mark.slow
SEVEN = LOOP.format(steps=7, after="pass")
AT_12 = LOOP.format(steps=40, after="if step == 12: import os; {}")


@pytest.mark.parametrize(
    ("program", "said", "code"),
    [
        (SEVEN, "ended after 7 steps, and the first recorded step ends with", 0),
        pytest.param(SEVEN + "sys.exit(3)", "ended after 7 steps", 3, marks=SLOW),
        ("import torch\nprint(torch.ones(2).sum())", "no step was found: no optimizer stepped", 0),
        ("print('no torch')", "no process of the program executed torch", 0),
        pytest.param(
            "import torch\ntorch.optim.SGD([torch.zeros(1)], 0.1)\nraise SystemExit(5)",
            "ended with exit code 5 before it had a step",
            5,
            marks=pytest.mark.slow,
        ),
        (AT_12.format("os._exit(4)"), "ended with exit code 4 and did not report a recording", 4),
        pytest.param(
            AT_12.format("os.kill(os.getpid(), 9)"),
            "ended with exit code 137 and did not report a recording",
            128 + signal.SIGKILL,
            marks=SLOW,
        ),
    ],
)
def test_why_nothing_is_recorded_is_said(program: str, said: str, code: int, tmp_path: Path) -> None:
    done = recorded(tmp_path, program)
    assert done.returncode == code
    assert said in done.stderr
    assert "nothing is recorded" in done.stderr
    assert left_in(tmp_path) == []


def test_the_program_stops_once_all_is_recorded(tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=10_000, after="pass"), "--stop")
    assert (done.returncode, done.stdout) == (0, "")
    assert len(trace_of(tmp_path / "trace.json.gz")[RECORDING]["after_ms"]) == 3


def test_loader_workers_and_forked_children_are_left_alone(tmp_path: Path) -> None:
    program = (
        "import os, torch\nm = torch.nn.Linear(8, 8)\no = torch.optim.SGD(m.parameters())\n"
        "if __name__ == '__main__':\n"
        "    loader = torch.utils.data.DataLoader(list(torch.ones(80, 8)), 2, num_workers=1)\n"
        "    for n, x in enumerate(loader):\n        m(x).sum().backward(); o.step()\n"
        "        if n == 11:\n            child = os.fork()\n"
        "            if not child:\n                for _ in range(30): o.step()\n                os._exit(0)\n"
        "            os.waitpid(child, 0)\n    print('ended')\n"
    )
    done = recorded(tmp_path, program)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert steps_of(tmp_path / "trace.json.gz") == 3
    assert left_in(tmp_path) == ["trace.json.gz"]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_child_that_trains_is_recorded(method: str, tmp_path: Path) -> None:
    body = "\n".join("    " + line for line in LOOP.format(steps=30, after="pass").strip().splitlines()[1:])
    program = (
        f"import torch, sys\nimport multiprocessing as mp\ndef train():\n{body}\n"
        f"if __name__ == '__main__':\n    p = mp.get_context('{method}').Process(target=train)\n"
        "    p.start(); p.join()\n"
    )
    # A child that is spawned starts as its parent did.
    started = (sys.executable, "train.py") if method == "spawn" else ()
    done = recorded(tmp_path, program, words=started)
    assert done.returncode == 0, done.stderr
    assert steps_of(tmp_path / "trace.json.gz") == 3


@pytest.mark.slow
def test_a_compiled_step_is_whole_under_the_recorder(tmp_path: Path) -> None:
    program = (
        "import torch\nclass M(torch.nn.Module):\n"
        "    def __init__(s): super().__init__(); s.l = torch.nn.Linear(8, 8)\n"
        "    def forward(s, x): return s.l(x).relu()\n"
        "m, m2 = M(), M()\nf = torch.compile(m, backend='eager', fullgraph=True)\n"
        "m2.compile(backend='eager', fullgraph=True)\n"
        "for _ in range(30): f(torch.ones(4, 8)), m2(torch.ones(4, 8))\n"
        "print(torch._dynamo.utils.counters['stats'].get('unique_graphs'))\n"
    )
    (tmp_path / "train.py").write_text(program)
    alone = subprocess.check_output([sys.executable, "train.py"], text=True, cwd=tmp_path)
    done = recorded(tmp_path, program, real=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone
    assert "Warning" not in done.stderr
    assert steps_of(tmp_path / "trace.json.gz") == 3


def test_a_module_is_run_as_python_m_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    done = recorded(tmp_path, LOOP.format(steps=30, after="pass"), "-m", words=("train",))
    assert done.returncode == 0, done.stderr
    assert steps_of(tmp_path / "trace.json.gz") == 3


@pytest.mark.parametrize(
    ("named", "body", "per_step"),
    [
        ("__main__:work", "for _ in range(30): work()\n", 1),
        pytest.param("__main__:Model.step", "m = Model()\nfor _ in range(30): m.step()\n", 1, marks=SLOW),
        ("__main__:Model.static", "for _ in range(30): Model.static(); work()\n", 2),
        ("helper:work", "import helper\nfrom helper import work as other\nfor _ in range(30): other()\n", 1),
        pytest.param(
            "helper:work",
            "import threading, helper\ndef run():\n    for _ in range(30): helper.work()\n"
            "t = threading.Thread(target=run); t.start(); t.join()\n",
            1,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_calls_of_a_function_are_steps(named: str, body: str, per_step: int, tmp_path: Path) -> None:
    work = "import torch\ndef work():\n    torch.ones(8).sum()\n"
    (tmp_path / "helper.py").write_text(work)
    methods = "class Model:\n    def step(self): work()\n    @staticmethod\n    def static(): work()\n"
    done = recorded(tmp_path, work + methods + body, "--every-call-of", named)
    assert done.returncode == 0, done.stderr
    document = trace_of(tmp_path / "trace.json.gz")
    assert document[RECORDING]["unit"] == "call"
    names = [event.get("name") for event in document["traceEvents"]]
    assert names.count("aten::ones") == 3 * per_step


def test_a_function_that_is_never_called_has_no_steps(tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=30, after="pass"), "--every-call-of", "__main__:work")
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert "nothing is recorded: no step was found" in done.stderr


def test_a_command_that_is_not_there_and_a_file_that_is(tmp_path: Path) -> None:
    done = recorded(tmp_path, "", words=("no-such-program",))
    assert done.returncode == 2
    assert "no-such-program cannot be started: No such file or directory" in done.stderr
    (tmp_path / "trace.json.gz").write_text("kept")
    done = recorded(tmp_path, LOOP.format(steps=30, after="pass"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "already exists" in done.stderr
    assert (tmp_path / "trace.json.gz").read_text() == "kept"
