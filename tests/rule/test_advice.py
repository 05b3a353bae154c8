"""What a remedy takes where the trace was recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from traceanalyzer import rules as rules_package
from traceanalyzer.idle import cause_texts
from traceanalyzer.idle.cause_texts import TEXTS
from traceanalyzer.rule.advice import FEATURES, adapt_to_recording

OLD = "torch 1.8 to 1.11"
ROCM = "torch 2.8 to 2.11 on ROCm"


@pytest.mark.parametrize(
    ("advice", "dialect", "needs"),
    [
        ("Pass {fused=True to SGD}", OLD, "2.3"),
        ("Pass {fused=True to SGD}", "torch 2.1 to 2.3", "2.3"),
        ("Pass {fused=True to AdamW}", "torch 2.1 to 2.3", ""),
        ("Use {torch.compile}", OLD, "2.0"),
        ("Use {torch.compile}(mode='reduce-overhead')", OLD, "2.0"),
        ("Use {torch.compile}", "torch 2.12 or later", ""),
        ("Use {torch.compile}", "unknown", ""),
        ("Use {torch.compile}", "", ""),
        ("Use {F.rms_norm}", "torch 2.4 previews of spring 2024", ""),
        ("Use {F.rms_norm}", "torch 2.1 to 2.3", "2.4"),
        ("Use {channels_last}", "torch 2.8 to 2.11", ""),
    ],
)
def test_an_old_torch_may_not_have_it(advice: str, dialect: str, needs: str) -> None:
    beside = f" (needs torch {needs} or later). This was recorded with {dialect}." if needs else "."
    assert adapt_to_recording(f"{advice}.", dialect) == advice.replace("{", "").replace("}", "") + beside


def test_channels_last_takes_a_switch_on_rocm() -> None:
    """Beside the layout, since without the switch it does nothing."""
    told = adapt_to_recording("Use {channels_last}: model.", ROCM)
    assert told.startswith("Use channels_last and PYTORCH_MIOPEN_SUGGEST_NHWC=1: model.")
    assert "MIOPEN" not in adapt_to_recording("Pin the source.", ROCM)


def test_cuptis_switch_is_not_advised_on_rocm() -> None:
    advice = TEXTS["waiting"].advice
    assert "enable_cuda_sync_events" in adapt_to_recording(advice, "torch 2.8 to 2.11")
    there = adapt_to_recording(advice, ROCM)
    assert "cuda" not in there
    assert "rocprofv3" in there


def texts_of(path: Path) -> Iterator[str]:
    """What a module may advise: its texts without docstrings, sources of limits, and reasons for not applying."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    others = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.Raise)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "limit")
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield node.value


def test_what_an_advice_takes_is_marked() -> None:
    """Else an old torch would be advised what it has not."""
    names = "|".join(map(re.escape, FEATURES))
    bare = re.compile(rf"(?<![{{.\w])(?:{names})(?![\w}}])")
    modules = [*Path(rules_package.__file__ or "").parent.rglob("*.py"), Path(cause_texts.__file__)]
    assert [text for path in modules for text in texts_of(path) if bare.search(text)] == []


def test_names_in_braces_are_left_alone() -> None:
    assert (
        adapt_to_recording("Move {lambda(int)#1} out of the loop.", ROCM)
        == "Move {lambda(int)#1} out of the loop."
    )
