"""What is shipped: the analyzer alone, typed, working without torch, without this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.version import DISTRIBUTION, __version__, install_command

pytestmark = pytest.mark.xdist_group("wheel")  # built once


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the tracked files of the package without any download."""
    source = tmp_path_factory.mktemp("source")
    folder = tmp_path_factory.mktemp("wheel")
    for path in [REPOSITORY / "pyproject.toml", REPOSITORY / "docs/package.md", *package_files()]:
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
    parts = (path for kind in ("html", "css", "js", "md", "toml") for path in package.rglob(f"*.{kind}"))
    return [*package.rglob("*.py"), *parts, package / "py.typed"]


def test_wheel_holds_the_whole_analyzer_and_nothing_else(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(str(path.relative_to(REPOSITORY)) for path in package_files())


def metadata_of(wheel: Path) -> Message:
    """The metadata that an index shows, by field."""
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
    return message_from_bytes(archive.read(name))


def test_analyzer_requires_pandas_and_not_torch(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    required = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert metadata["Version"] == __version__
    assert any(need.startswith("pandas") for need in required)
    assert not any(need.startswith("torch") for need in required)


def test_install_hints_name_this_distribution(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    texts = [*package_files(), *REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    hints = {
        (path.name, match[1], match[2])
        for path in texts
        for match in re.finditer(r"pip install '?([\w-]*traceanalyzer)(?:\[(\w+)\])?", path.read_text())
    }
    assert {extra for _, _, extra in hints} == {None, *metadata.get_all("Provides-Extra", [])}
    assert {name for _, name, _ in hints} == {metadata["Name"]} == {DISTRIBUTION}
    assert install_command("mcp") == f"pip install '{metadata['Name']}[mcp]'"


def test_description_has_no_links_into_the_repository(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "pip install torch-traceanalyzer" in metadata.get_payload()
    assert not re.search(r"\]\((?!https?://)", metadata.get_payload())


@pytest.mark.slow
def test_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
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
