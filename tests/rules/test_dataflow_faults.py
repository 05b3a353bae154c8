"""Faults about data in recordings with execution traces: how many are named with high confidence."""

from functools import cache

import pytest

from tests.support.paths import SHARED
from traceanalyzer import Finding, diagnose, load
from traceanalyzer.model.finding import Confidence, Severity

FOLDER = SHARED / "dataflow"
# Recording -> rule and cause that name its fault.
NAMED = {
    "third.attention_math": "hand-written-attention",
    "third.weight_cast": "computed-again constant-weights",
    "third.kv_cat": "strided-copy growing-buffer",
    "third.transpose_copies": "strided-copy transposition",
    "fifth.kv_repeat": "strided-copy repetition",
    "fifth.rope_fp32": "no-tensor-cores attention",
    "fifth.onehot_embed": "one-hot",
    "fifth.linattn_order": "product-order",
    "fifth.multi_backward": "repeated-backward",
    "fifth.gcn_uncached": "computed-again unchanged-inputs",
    "sixth.prompt_pass": "computed-unused partly-read",
    "sixth.codec_rvq": "unfused-pointwise",
    "sixth.speech_two": "computed-again loop-invariant",
    "sixth.gan_two": "computed-unused unread-gradients",
    "sixth.linear_probe": "computed-unused unread-gradients",
    "seventh.char_rnn": "computed-again loop-invariant",
    "seventh.table_former": "computed-again second-pass",
    "seventh.depth_map": "late-projection upsampled",
}
# Named with less than high confidence, or not at all.
OTHERS = (
    *("fifth.softmax_log", "sixth.beam_serve", "sixth.lm_loss", "seventh.agent_decode", "seventh.tenant_prefill"),
    "seventh.field_operator",
)
RULES = sorted({named.split()[0] for named in NAMED.values()})
REPAIRED = [name for name in (*NAMED, *OTHERS) if (FOLDER / f"{name}.fixed.json.gz").exists()]
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no shared traces")


@cache
def findings(name: str) -> tuple[Finding, ...]:
    trace = load(FOLDER / f"{name}.json.gz", tensors=FOLDER / f"et/{name}.json.gz")
    return tuple(diagnose(trace, select=RULES).findings)


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_about_data_is_named_with_high_confidence(name: str) -> None:
    certain = [one for one in findings(f"{name}.bad") if one.confidence is Confidence.HIGH]
    assert NAMED[name] in {f"{one.rule} {one.cause}".strip() for one in certain}


# The last layer computes all positions of a prompt whose last one is read; distances are computed op by op.
REMAINING = {"seventh.tenant_prefill": ["computed-unused"], "sixth.codec_rvq": ["unfused-pointwise"]}


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_program_is_not_accused(name: str) -> None:
    accused = [one.rule for one in findings(f"{name}.fixed") if one.severity.rank < Severity.LOW.rank]
    assert accused == REMAINING.get(name, [])
