"""Code with a name: chains of kernels, functions, and loops of ops."""

import pytest

from tests.support.advice_marks import unknown_marks
from tests.support.cached_reports import reported
from tests.support.paths import SHARED
from traceanalyzer.rule.idioms import idiom_of, idioms

KERNELS = {
    "mul > mul > copy_ > tanh_backward > mul > copy_ > mul > pow > mul > add_ > ...": "tanh-GELU by hand",
    "mul > pow > pow > mul > add > mul > tanh > add > mul": "tanh-GELU by hand",
    "div > erf > add > mul > mul": "GELU by hand",
    "add > to > pow > mean > add > rsqrt > mul > to > mul": "RMSNorm by hand",
    "mean > sub > pow > mean > add > rsqrt > mul": "LayerNorm by hand",
    "var > mean > sub > add > sqrt > div": "LayerNorm by hand",
    "sub > exp > sum > log > sub": "cross-entropy by hand",
    "log_softmax > gather > neg": "cross-entropy by hand",
    "to > softmax > add > log": "cross-entropy by hand",
    "cos > mul > sin > mul > to > to": "rotary embedding by hand",
    "mul > neg > cat > mul > add": "rotary embedding by hand",
    "silu > mul": "SwiGLU",
    "mul > mul > copy_ > gelu_backward": "GeGLU",
    "sigmoid > mul": "SiLU or a gate by hand",
    "add > sigmoid > tanh > mul > add > mul": "LSTM or GRU cell by hand",
}
CALLS = {
    "torchmetrics/metric.py(286): forward": "forward() of metrics",
    "torchmetrics/classification/stat_scores.py(69): _update_state": "torchmetrics",
    "timm/utils/model_ema.py(120): update": "EMA of the weights",
    "aten::linalg_cholesky": "Cholesky factorization",
    "tensor()": "a tensor made of a Python list",
    "asarray()": "an array made of a Python list",
    "concatenate()": "an array joined of parts",
    "numpy.ndarray.tolist()": "a Python list made of a tensor",
    "sorted()": "sorting of Python objects",
    "sum()": "a reduction of Python numbers",
    "copy.py(200): _deepcopy_list": "deepcopy",
    "json/decoder.py(343): raw_decode": "JSON",
    "_pickle.Unpickler.load()": "loads() and dumps()",
    "/usr/lib/python3.12/random.py(336): randint": "random numbers of Python",
    "augment/random.py(40): crop": None,
    "metrics/statistics.py(12): update": None,
    "utils/json/io.py(3): read": None,
    "re.Pattern.sub()": "regular expressions",
    "str.format()": "formatting of text",
    "collect()": "garbage collection",
    "random.py(400): sample": "random numbers of Python",
    "PIL/ImageFile.py(300): load": "decoding of images",
    "pandas/core/indexing.py(1100): __getitem__": "rows of a DataFrame",
    "train.py(9): sorted": None,
    "train.py(40): update_ema": "EMA of the weights",
    "train.py(40): ema_step": "EMA of the weights",
    "nets/EMAModel.py(40): step": "EMA of the weights",
    "demand_forecast.py(42): decode": None,
    "data/schema.py(9): schema_of": None,
    "sample.py(8): stop_process": None,
    "torch/nn/utils/clip_grad.py(40): _get_total_norm": "gradient clipping",
    "train.py(9): clip_grads_by_global_norm": "gradient clipping",
    "torch/nn/utils/parametrizations.py(480): forward": "weight or spectral norm",
    "120 x mv, linalg_vector_norm, clamp_min_, expand_as, div, matrix_H": "spectral norm",
    "22 x mT, matmul, mul, add": "Newton-Schulz iteration (Muon)",
    "transformers/trainer.py(3103): _maybe_log_save_evaluate": "logging of the Trainer",
    "peft/tuners/lora/model.py(300): set_adapter": "switching of adapters",
    "transformers/generation/logits_process.py(1535): __call__": "logits processor",
    "torchdiffeq/_impl/adjoint.py(72): augmented_dynamics": "ODE solver",
    "accelerate/utils/modeling.py(227): set_module_tensor_to_device": "offloaded weights",
    "sentence_transformers/base/losses/gradcache.py(351): embed_minibatch": "loss with cached embeddings",
    "torch_geometric/nn/conv/rgcn_conv.py(164): forward": "convolution of each relation",
    "transformers/generation/utils.py(2168): _prepare_special_tokens": "generate()",
    "transformers/modeling_attn_mask_utils.py(429): _prepare_4d_attention_mask_for_sdpa": "attention mask",
    "transformers/tokenization_utils_base.py(2900): __call__": "tokenizer",
    "transformers/tokenization_utils_base.py(2853): decode": "decoding of tokens",
    "transformers/tokenization_utils_tokenizers.py(1133): _decode": "decoding of tokens",
    "transformers/tokenization_utils_base.py(2901): batch_decode": "decoding of tokens",
    "serve.py(186): detokenize": "decoding of tokens",
    "tokenizers.Tokenizer.decode()": "decoding of tokens",
    "data.py(12): pad_collate": "collate function",
    "torchvision/ops/boxes.py(50): batched_nms": "non-maximum suppression",
    "torchvision::nms": "non-maximum suppression",
    "sample.py(8): top_p_filter": "top-p sampling",
    "train.py(40): step": None,
    "64 x select, lstm_cell": None,
    "120 x mul, add, copy_": "EMA of tensors",
    "64 x abs, mean, clamp, div, round, mul": "fake quantization",
    "torch_geometric/nn/conv/gcn_conv.py(45): gcn_norm": "GCN normalization",
    "120 x mul, add": None,
}
PLAIN = (
    "mul > mul > copy_ > threshold_backward",
    "relu > to > square",
    "mul > add > tanh > mul > add > tanh",
    "sigmoid > sub > mul",
    "mul > add > mul",
)


@pytest.mark.parametrize("chain", KERNELS)
def test_chain_has_its_name(chain: str) -> None:
    found = idiom_of("kernels", [chain])
    assert found is not None
    assert found.name == KERNELS[chain]


@pytest.mark.parametrize("chain", PLAIN)
def test_chain_without_a_name(chain: str) -> None:
    assert idiom_of("kernels", [chain]) is None


@pytest.mark.parametrize("code", CALLS)
def test_code_has_its_name(code: str) -> None:
    found = idiom_of("calls", [code])
    assert (found and found.name) == CALLS[code]


CALLED = {
    "transformers/models/mixtral/modeling_mixtral.py(69): forward, called by transformers/integrations/moe.py(570): "
    "forward": "experts of transformers",
    "transformers/integrations/moe.py(377): grouped_mm_experts_forward, called by transformers/integrations/moe.py(570)"
    ": forward": None,
    "model.py(69): forward, called by train.py(12): step": None,
}


@pytest.mark.parametrize("code", CALLED)
def test_code_has_its_name_by_its_caller(code: str) -> None:
    found = idiom_of("called", [code])
    assert (found and found.name) == CALLED[code]


def test_every_idiom_is_tested() -> None:
    assert {one.name for one in idioms("called")} == set(filter(None, CALLED.values()))
    assert {one.name for one in idioms("kernels")} == set(KERNELS.values())
    assert {one.name for one in idioms("calls")} == set(filter(None, CALLS.values()))


@pytest.mark.parametrize("kind", ["kernels", "calls", "called"])
def test_fixes_are_imperative_sentences(kind: str) -> None:
    for one in idioms(kind):
        assert one.fix[0].isupper()
        # The rule of kernels goes on: ", or put the chain ...".
        assert one.fix.endswith(".") == (kind != "kernels")
        assert not unknown_marks(one.fix)


@pytest.mark.skipif(not (SHARED / "real").exists(), reason="no shared traces")
@pytest.mark.parametrize(
    ("trace", "rule", "idiom", "fix"),
    [
        ("real/gpt2_train.eager", "unfused-pointwise", "tanh-GELU by hand", "F.gelu(x, approximate='tanh')"),
        ("sixth/gan_two.bad", "launch-bound", "spectral norm", "torch.nn.utils.parametrize.cached()"),
        ("sixth/lm_small_train.fixed", "launch-bound", "Newton-Schulz iteration (Muon)", "torch.bmm"),
        ("pairs4/metric_checks.bad", "implicit-sync", "torchmetrics", "Update the metrics"),
    ],
)
def test_recorded_program_shows_its_idiom(trace: str, rule: str, idiom: str, fix: str) -> None:
    found = [one for one in reported(SHARED / f"{trace}.json.gz").findings if one.rule == rule]
    assert any(one.evidence.get("idiom") == idiom and fix in one.advice for one in found)
