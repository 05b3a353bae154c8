"""What is shipped: the analyzer alone, typed, working without torch, without this repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.builder import TraceBuilder
from traceanalyzer.version import __version__

pytestmark = pytest.mark.xdist_group("wheel")  # built once

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tracked files of the package without any download."""
    source = tmp_path_factory.mktemp("source")
    folder = tmp_path_factory.mktemp("wheel")
    for path in [REPOSITORY / "pyproject.toml", REPOSITORY / "README.md", *package_files()]:
        copy = source / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    for other in ("capture", "tests", "benchmarks"):  # must stay out of the wheel
        (source / other).mkdir()
        (source / other / "__init__.py").touch()
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def package_files() -> list[Path]:
    """Sources, the parts of the report's page, and the mark that they are typed."""
    package = REPOSITORY / "traceanalyzer"
    parts = (path for kind in ("html", "css", "js", "md") for path in package.rglob(f"*.{kind}"))
    return [*package.rglob("*.py"), *parts, package / "py.typed"]


def test_it_holds_the_analyzer_alone_and_all_of_it(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(str(path.relative_to(REPOSITORY)) for path in package_files())


def test_it_says_what_it_needs_and_torch_is_not_among_it(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    needed = [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert f"Version: {__version__}" in metadata
    assert any("pandas" in line for line in needed)
    assert not any("torch" in line for line in needed)


@pytest.mark.slow
def test_it_works_where_nothing_else_of_this_repository_is(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    made = TraceBuilder()
    made.launch("cudaLaunchKernel", 0, 10_000, 1)
    made.kernel(20_000, 1_000_000, 1)
    trace = made.write(tmp_path / "trace.json")
    blocked = tmp_path / "blocked" / "torch"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('torch must not be imported')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(blocked.parent)])}
    for command in (["diagnose", str(trace)], ["report", str(trace), "-o", "report.html"]):
        whole = [sys.executable, "-P", "-m", "traceanalyzer", *command]
        done = subprocess.run(whole, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "failed" not in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    where = [sys.executable, "-P", "-c", "import traceanalyzer; print(traceanalyzer.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, check=True, env=env, cwd=tmp_path)
    assert found.stdout.startswith(str(site))
