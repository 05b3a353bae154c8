"""`traceanalyzer record` does no harm, and never records nothing in silence: programs that do what libraries do.

They run on a stand-in for torch, each in a python of its own as a user starts it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.recorder.programs import QUICK, REPOSITORY, left_in, run_command, steps_of, trace_of
from traceanalyzer.model.step_times import RECORDING

TRAIN = """
import os, sys, time
import torch
optimizer = torch.optim.SGD()
for step in range(30):
    optimizer.step()
    {after}
print("ended")
"""
PLAIN = TRAIN.format(after="pass")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose programs import the stand-in."""
    (tmp_path / "lib" / "torch").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("quick_torch.py"), tmp_path / "lib" / "torch" / "__init__.py")
    return tmp_path


def record(
    folder: Path, program: str, *options: str, words: tuple[str, ...] = (sys.executable, "train.py")
) -> subprocess.CompletedProcess[str]:
    """The program under the recorder."""
    (folder / "train.py").write_text(program)
    return run_command(folder, [*options, "--", *words], libraries=folder / "lib")


def outputs(folder: Path) -> list[str]:
    return [name for name in left_in(folder) if not name.startswith("lib/")]


FOUND = 'import importlib.util\nfor _ in range(2): assert importlib.util.find_spec("torch")\n'
THREAD = "import threading\nt = threading.Thread(target=lambda: __import__('torch'))\nt.start(); t.join()\n"


@pytest.mark.parametrize("before", [FOUND, THREAD], ids=["find_spec", "thread"])
def test_torch_is_recorded_whatever_looks_for_it_first(before: str, folder: Path) -> None:
    done = record(folder, before + PLAIN)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert steps_of(folder / "trace.json.gz") == 3


EXEC = "import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n"
CHILD = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'inner.py']))\n"
OTHER_IMPORT = "import torch\n" + CHILD


@pytest.mark.parametrize(
    "launcher",
    [EXEC, pytest.param(CHILD, marks=pytest.mark.slow), OTHER_IMPORT],
    ids=["exec", "child", "imports torch"],
)
def test_a_program_behind_a_launcher_is_recorded(launcher: str, folder: Path) -> None:
    (folder / "inner.py").write_text(PLAIN + "sys.exit(3)")
    done = record(folder, launcher)
    assert (done.returncode, done.stdout) == (3, "ended\n")
    assert outputs(folder) == ["trace.json.gz"]
    assert steps_of(folder / "trace.json.gz") == 3


def test_a_console_script_is_recorded(folder: Path) -> None:
    (script := folder / "train").write_text(f"#!{sys.executable}\n{PLAIN}")
    script.chmod(0o755)
    done = record(folder, "", words=("./train",))
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert steps_of(folder / "trace.json.gz") == 3


def test_the_sitecustomize_of_the_environment_still_runs(folder: Path) -> None:
    (folder / "lib" / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    done = record(folder, PLAIN + "print(sys.customized)")
    assert done.stdout == "ended\nTrue\n"
    assert steps_of(folder / "trace.json.gz") == 3


@pytest.mark.slow
def test_spawned_ranks_keep_their_numbers_in_short_runs(folder: Path) -> None:
    """They leave their job before they end."""
    program = (
        "import multiprocessing, os\n"
        "def train(rank):\n    os.environ.update(RANK=str(rank), WORLD_SIZE='2')\n    import torch\n"
        "    optimizer = torch.optim.SGD()\n    for _ in range(16): optimizer.step()\n"
        "    del os.environ['RANK'], os.environ['WORLD_SIZE']\n"
        "if __name__ == '__main__':\n    spawn = multiprocessing.get_context('spawn')\n"
        "    ranks = [spawn.Process(target=train, args=(rank,)) for rank in range(2)]\n"
        "    for rank in ranks: rank.start()\n    for rank in ranks: rank.join()\n"
    )
    done = record(folder, program)
    assert done.returncode == 0, done.stderr
    assert outputs(folder) == ["trace-rank0.json.gz", "trace-rank1.json.gz"]
    metadata = [trace_of(folder / f"trace-rank{rank}.json.gz")[RECORDING] for rank in range(2)]
    assert [(entry["rank"], entry["world"]) for entry in metadata] == [(0, 2), (1, 2)]


# -- the program's own profiler

SCHEDULED = """
import torch
optimizer = torch.optim.SGD()
with torch.profiler.profile() as profiler:
    for step in range(30):
        optimizer.step()
        profiler.step()
profiler.export_chrome_trace("theirs.json")
print("ended")
"""
STARTS_AND_STOPS = """
import torch
optimizer, profiler = torch.optim.SGD(), torch.profiler.profile()
for step in range(60):
    if step == {start}: profiler.start()
    if step == {stop}: profiler.stop()
    optimizer.step()
profiler.export_chrome_trace("theirs.json")
print("ended")
"""


def test_a_program_under_its_profiler_is_left_alone(folder: Path) -> None:
    done = record(folder, SCHEDULED)
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert "nothing is recorded: the program has a profiler of its own" in done.stderr
    assert f"this is the trace of the program's own profiler: {folder / 'theirs.json'}" in done.stderr
    assert outputs(folder) == ["theirs.json"]


@pytest.mark.parametrize(("start", "stop", "recorded"), [(0, 6, 3), (10, 13, 3), (13, 16, 2), (16, 19, 3)])
def test_the_program_may_profile_at_any_step(start: int, stop: int, recorded: int, folder: Path) -> None:
    """Before the recorded steps, in their warm-up, within them, and after them."""
    done = record(folder, STARTS_AND_STOPS.format(start=start, stop=stop))
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert outputs(folder) == ["theirs.json", "trace.json.gz"]
    assert trace_of(folder / "trace.json.gz")[RECORDING]["recorded_steps"] == recorded


# -- ends of programs


@pytest.mark.parametrize(
    ("after", "code", "recorded"),
    [
        ("if step == 28: sys.exit(7)", 7, 3),
        ("if step == 16: raise ValueError('no')", 1, 3),
        ("if step == 16: os._exit(4)", 4, 3),
        ("if step == 16: os.kill(os.getpid(), 9)", 137, 3),
        ("if step == 16: os.kill(os.getpid(), 15)", 143, 3),
        ("if step == 5: raise ValueError('no')", 1, 0),
        ("if step == 5: os._exit(4)", 4, 0),
    ],
)
def test_exit_codes_and_steps_survive_every_end(after: str, code: int, recorded: int, folder: Path) -> None:
    done = record(folder, TRAIN.format(after=after))
    assert done.returncode == code
    assert outputs(folder) == ["trace.json.gz"] * bool(recorded)
    if recorded:
        assert steps_of(folder / "trace.json.gz") == recorded
    else:
        assert "traceanalyzer record: nothing is recorded: " in done.stderr
        assert f"exit code {code}" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_command_keeps_steps(number: signal.Signals, code: int, folder: Path) -> None:
    """Without a terminal, which would send Ctrl-C to the program itself."""
    pause = "if step == 16: open('running', 'w').close(); time.sleep(60)"
    (folder / "train.py").write_text(TRAIN.format(after=pause))
    words = [sys.executable, "-m", "traceanalyzer", "record", *QUICK, "--", sys.executable, "train.py"]
    env = {**os.environ, "PYTHONPATH": f"{folder / 'lib'}{os.pathsep}{REPOSITORY}"}
    # Whoever runs the tests under nohup ignores SIGHUP, and what is ignored is not passed on.
    heard = partial(signal.signal, number, signal.SIG_DFL)
    command = subprocess.Popen(
        words, cwd=folder, env=env, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=heard
    )
    _wait_for(folder / "running")
    command.send_signal(number)
    assert command.wait(30) == code
    assert outputs(folder) == ["running", "trace.json.gz"]
    assert steps_of(folder / "trace.json.gz") == 3


def test_a_crash_is_reported_with_its_step(folder: Path) -> None:
    done = record(folder, TRAIN.format(after="if step == 5: raise ValueError('no')"))
    reason = "the program failed with ValueError after 6 steps, before any were recorded (exit code 1)"
    assert f"nothing is recorded: {reason}" in done.stderr


@pytest.mark.parametrize(("require", "code"), [(False, 0), (True, 2)])
def test_nothing_recorded_is_never_silent(require: bool, code: int, folder: Path) -> None:
    done = record(folder, "import torch\nprint('ended')", *["--require"] * require)
    assert (done.returncode, done.stdout) == (code, "ended\n")
    assert "nothing is recorded: no step was found" in done.stderr


def test_a_python_that_ignores_its_environment_is_named(folder: Path) -> None:
    done = record(folder, "", words=(sys.executable, "-I", "-c", "print('ended')"))
    assert (done.returncode, done.stdout) == (0, "ended\n")
    assert "its python does not read PYTHONPATH (python -I and -E do not)" in done.stderr


# -- files


@pytest.mark.slow
def test_a_second_run_replaces_no_file_without_force(folder: Path) -> None:
    assert record(folder, PLAIN).returncode == 0
    before = (folder / "trace.json.gz").read_bytes()
    assert "already exists" in record(folder, PLAIN).stderr
    assert (folder / "trace.json.gz").read_bytes() == before
    assert record(folder, PLAIN, "--force").returncode == 0
    assert (folder / "trace.json.gz").read_bytes() != before
    assert outputs(folder) == ["trace.json.gz"]


@pytest.mark.slow
def test_processes_of_a_program_write_files_of_their_own(folder: Path) -> None:
    (folder / "inner.py").write_text(PLAIN)
    launcher = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'inner.py'], check=True)\n"
    done = record(folder, launcher)
    assert (done.returncode, done.stdout) == (0, "ended\nended\n")
    assert outputs(folder) == ["trace-2.json.gz", "trace.json.gz"]


def test_a_daemon_writes_nothing_after_the_command(folder: Path) -> None:
    program = (
        "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nimport time, torch\n"
        "for stream in (0, 1, 2): os.close(stream)\n"
        "open('running', 'w').close()\nwhile os.path.exists('running'): time.sleep(0.01)\n"
        "optimizer = torch.optim.SGD()\nfor _ in range(30): optimizer.step()\nopen('ended', 'w').close()\n"
    )
    record(folder, program)
    _wait_for(folder / "running")
    (folder / "running").unlink()
    _wait_for(folder / "ended")
    time.sleep(0.1)
    assert outputs(folder) == ["ended"]


@pytest.mark.slow
def test_a_killed_command_leaves_nothing_after_the_next(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN.format(after="open('running', 'w').close(); time.sleep(0.05)"))
    words = [sys.executable, "-m", "traceanalyzer", "record", "--", sys.executable, "train.py"]
    env = {**os.environ, "PYTHONPATH": f"{folder / 'lib'}{os.pathsep}{REPOSITORY}"}
    command = subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.DEVNULL)
    _wait_for(folder / "running")
    command.send_signal(signal.SIGKILL)
    command.wait()
    assert any(name.startswith(".traceanalyzer-record-") for name in os.listdir(folder))
    time.sleep(1.6)  # the program goes on to its end
    assert record(folder, PLAIN).returncode == 0
    assert outputs(folder) == ["running", "trace.json.gz"]
    assert not any(name.startswith(".traceanalyzer") for name in os.listdir(folder))


def test_the_command_of_the_metadata_has_no_secret(folder: Path) -> None:
    words = (sys.executable, "train.py", "--hub-token", "hf_abcdefghijkl", "--max-tokens", "5")
    record(folder, PLAIN, words=words)
    command = trace_of(folder / "trace.json.gz")[RECORDING]["command"]
    assert command == ["train.py", "--hub-token", "***", "--max-tokens", "5"]
    assert "hf_abcdefghijkl" not in json.dumps(trace_of(folder / "trace.json.gz"))


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists()
