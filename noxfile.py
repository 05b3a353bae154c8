"""The tests on other versions of Python and of what the analyzer needs. `pipx run nox` or `uvx nox` runs them all.

nox -s tests-3.13      # one Python, newest releases
nox -s launchers       # programs of real libraries under `record`; installs torch
nox -s oldest          # the oldest releases that pyproject.toml allows

torch is left out of the others: the tests that need it skip themselves. A Python that is not installed is skipped, too.
"""

from __future__ import annotations

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST_PYTHON = PYTHONS[0]

PYPROJECT = nox.project.load_toml("pyproject.toml")
TOOLS = [*nox.project.dependency_groups(PYPROJECT, "dev", "browser")]

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Newest releases of everything."""
    session.install("--upgrade", ".", *TOOLS)
    _run(session)


@nox.session(python=OLDEST_PYTHON)
def oldest(session: nox.Session) -> None:
    """Oldest releases of pandas, pyarrow and all else that the analyzer needs."""
    pinned = [need.replace(">=", "==") for need in PYPROJECT["project"]["dependencies"]]
    session.install(".", *pinned, *TOOLS)
    _run(session)


@nox.session(python=OLDEST_PYTHON)
def launchers(session: nox.Session) -> None:
    """`record` on programs of real libraries and through real launchers, on the CPU."""
    session.install(
        ".",
        "torch",
        "torchvision",
        "transformers",
        "accelerate",
        "lightning",
        "timm",
        "datasets",
        "nbconvert",
        "ipykernel",
        "pytest",
        "uv",
    )
    session.run("python", "benchmarks/recording/launchers.py", *session.posargs)


def _run(session: nox.Session) -> None:
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "loadgroup", *session.posargs)
