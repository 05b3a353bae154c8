"""The op table against torch itself: every call is recorded by torch's profiler, its result compared with the table."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceanalyzer import load
from traceanalyzer.tensors.ops.table import _TABLE, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Signature, signatures_of

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional

CALLS: dict[str, Callable[[], Any]] = {
    "add": lambda: torch.ones(4, 1, 3) + torch.ones(5, 1),
    "add_": lambda: torch.ones(4, 3).add_(torch.ones(3)),
    "where": lambda: torch.where(torch.ones(4, 1, dtype=torch.bool), torch.ones(5), torch.ones(1)),
    "clamp": lambda: torch.ones(4, 3).clamp(0, 1),
    "gelu": lambda: F.gelu(torch.ones(4, 3)),
    "lerp": lambda: torch.lerp(torch.ones(4, 1), torch.ones(5), 0.5),
    "masked_fill": lambda: torch.ones(4, 3).masked_fill(torch.ones(3, dtype=torch.bool), 0.0),
    "type_as": lambda: torch.ones(4, 3).type_as(torch.ones(2, dtype=torch.float64)),
    "to": lambda: torch.ones(4, 3).to(torch.float64),
    "clone": lambda: torch.ones(4, 3).clone(),
    "linear": lambda: F.linear(torch.ones(2, 7, 5), torch.ones(6, 5)),
    "mm": lambda: torch.ones(4, 5).mm(torch.ones(5, 6)),
    "bmm": lambda: torch.ones(9, 4, 5).bmm(torch.ones(9, 5, 6)),
    "addmm": lambda: torch.addmm(torch.ones(6), torch.ones(4, 5), torch.ones(5, 6)),
    "baddbmm": lambda: torch.baddbmm(torch.ones(4, 6), torch.ones(9, 4, 5), torch.ones(9, 5, 6)),
    "matmul": lambda: torch.ones(16, 4) @ torch.ones(9, 4, 5),
    "outer": lambda: torch.outer(torch.ones(4), torch.ones(7)),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        torch.ones(2, 4, 9, 8), torch.ones(2, 4, 7, 8), torch.ones(2, 4, 7, 6)
    ),
    "conv1d": lambda: F.conv1d(torch.ones(2, 6, 17), torch.ones(8, 3, 3), groups=2),
    "conv2d": lambda: F.conv2d(torch.ones(2, 6, 17, 20), torch.ones(8, 6, 3, 5), None, (2, 3), (1, 2), (2, 1)),
    "max_pool2d": lambda: F.max_pool2d(torch.ones(2, 6, 17, 20), 3, 2, 1, 2),
    "avg_pool2d": lambda: F.avg_pool2d(torch.ones(2, 6, 17, 20), 3, 2, 1),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(torch.ones(2, 6, 17, 20), (7, 5)),
    "upsample_nearest2d": lambda: F.interpolate(torch.ones(2, 6, 17, 20), size=(34, 41)),
    "upsample_bilinear2d": lambda: F.interpolate(torch.ones(2, 6, 17, 20), scale_factor=1.5, mode="bilinear"),
    "grid_sampler": lambda: F.grid_sample(torch.ones(2, 6, 17, 20), torch.ones(2, 9, 11, 2), align_corners=False),
    "layer_norm": lambda: F.layer_norm(torch.ones(4, 3), (3,)),
    "native_layer_norm": lambda: torch.native_layer_norm(torch.ones(4, 3), (3,), None, None, 1e-5)[0],
    "group_norm": lambda: F.group_norm(torch.ones(2, 6, 5, 4), 3),
    "batch_norm": lambda: F.batch_norm(torch.ones(2, 6, 5, 4), torch.ones(6), torch.ones(6), training=True),
    "softmax": lambda: torch.ones(4, 3).softmax(-1),
    "cumsum": lambda: torch.ones(4, 3).cumsum(1),
    "sum": lambda: torch.ones(4, 3, 5).sum((0, -1), keepdim=True),
    "mean": lambda: torch.ones(4, 3, 5).mean(1),
    "amax": lambda: torch.ones(4, 3, 5).amax((0, 1)),
    "max": lambda: torch.ones(4, 3).max(1)[0],
    "min": lambda: torch.ones(4, 3).min(),
    "argmax": lambda: torch.ones(4, 3).argmax(),
    "any": lambda: torch.ones(4, 3, dtype=torch.bool).any(1),
    "logsumexp": lambda: torch.ones(4, 3).logsumexp(-1),
    "linalg_vector_norm": lambda: torch.linalg.vector_norm(torch.ones(4, 3), dim=1, keepdim=True),
    "embedding": lambda: F.embedding(torch.zeros(5, 2, dtype=torch.long), torch.ones(100, 8)),
    "embedding_dense_backward": lambda: torch.ops.aten.embedding_dense_backward(
        torch.ones(5, 8), torch.zeros(5, dtype=torch.long), 100, -1, False
    ),
    "index_select": lambda: torch.ones(9, 8).index_select(0, torch.zeros(5, dtype=torch.long)),
    "gather": lambda: torch.ones(9, 8).gather(1, torch.zeros(9, 2, dtype=torch.long)),
    "scatter_add": lambda: torch.ones(9, 8).scatter_add(1, torch.zeros(9, 2).long(), torch.ones(9, 2)),
    "index_add": lambda: torch.ones(9, 8).index_add(0, torch.zeros(5, dtype=torch.long), torch.ones(5, 8)),
    "sort": lambda: torch.ones(9, 8).sort()[0],
    "bucketize": lambda: torch.bucketize(torch.ones(9, 8), torch.ones(5)),
    "cat": lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 5)], -1),
    "stack": lambda: torch.stack([torch.ones(2, 3)] * 4, -1),
    "repeat": lambda: torch.ones(4, 1).repeat(3, 5),
    "repeat_interleave": lambda: torch.ones(2, 3).repeat_interleave(4, 1),
    "pad": lambda: F.pad(torch.ones(2, 3, 10), (1, 2, 0, 4)),
    "flip": lambda: torch.ones(4, 3).flip(0),
    "tril": lambda: torch.ones(4, 3).tril(),
    "pixel_shuffle": lambda: F.pixel_shuffle(torch.ones(2, 12, 4, 5), 2),
    "im2col": lambda: F.unfold(torch.ones(2, 3, 10, 20), (3, 4), 1, (1, 0), (1, 2)),
    "view": lambda: torch.ones(6, 4).view(3, -1),
    "reshape": lambda: torch.ones(6, 4).reshape(-1, 2),
    "flatten": lambda: torch.ones(2, 3, 4, 5).flatten(1, 2),
    "expand": lambda: torch.ones(3, 1).expand(5, -1, 4),
    "unsqueeze": lambda: torch.ones(3, 4).unsqueeze(-1),
    "squeeze": lambda: torch.ones(3, 1, 4, 1).squeeze(1),
    "slice": lambda: torch.ones(9, 8)[1:7:2],
    "select": lambda: torch.ones(9, 8)[:, 3],
    "transpose": lambda: torch.ones(2, 3, 4).transpose(0, -1),
    "permute": lambda: torch.ones(2, 3, 4).permute(2, 0, 1),
    "t": lambda: torch.ones(2, 3).t(),
    "unfold": lambda: torch.ones(4, 20).unfold(1, 5, 3),
    "as_strided": lambda: torch.ones(12).as_strided((3, 4), (4, 1)),
    "detach": lambda: torch.ones(2, 3).detach(),
    "arange": lambda: torch.arange(2, 11, 4),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "eye": lambda: torch.eye(4, 7),
    "zeros_like": lambda: torch.zeros_like(torch.ones(4, 3)),
    "new_zeros": lambda: torch.ones(4).new_zeros((2, 5)),
    "full": lambda: torch.full((3, 1), 2.0),
    "randperm": lambda: torch.randperm(9),
    "hann_window": lambda: torch.hann_window(12),
    "normal_": lambda: torch.ones(4, 3).normal_(),
}


# Torch's schemas do not say that these share memory, or say it of ops that copy in most calls.
VIEWS_UNKNOWN_TO_SCHEMA = {"_unsafe_view", "unsafe_split", "unsafe_chunk", "unflatten_dense_tensors"}
MOSTLY_COPIES = {"to", "contiguous"}
# Schemas of batch norms omit the running mean and variance.
BATCH_NORMS = {"batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"}
# The table ignores dropout inside of attention and recurrent layers.
DROPOUT_INSIDE = re.compile("attention|_cudnn_rnn|^(lstm|gru|rnn_tanh|rnn_relu)$")
# Their contents are undefined.
UNINITIALIZED = re.compile("empty|^resize_$|^set_$")
OLD_OPS = {"l1_loss_backward"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Signature]:
    """Recorded inputs of each call's op."""
    path: Path = tmp_path_factory.mktemp("torch") / "trace.json"
    with torch.profiler.profile(record_shapes=True) as profiler:
        for name, call in CALLS.items():
            with torch.profiler.record_function(f"call {name}"):
                call()
    profiler.export_chrome_trace(str(path))
    trace = load(path)
    cpu = trace.cpu.sort_values("start_ns", kind="stable")
    number, signatures = signatures_of(trace, cpu.index.to_numpy(np.int64))
    found: dict[str, Signature] = {}
    current = ""
    for name, which in zip(cpu["name"].astype(str), number.tolist(), strict=True):
        current = name.removeprefix("call ") if name.startswith("call ") else current
        if name == f"aten::{current}":
            found.setdefault(current, signatures[which])
    return found


@pytest.mark.parametrize("name", CALLS)
def test_result_shape_equals_torchs(name: str, recorded: dict[str, Signature]) -> None:
    assert result_shape(recorded[name]) == tuple(CALLS[name]().shape)


def overloads(name: str) -> list[Any]:
    """Torch's overloads of an op, without those that write into a result that the caller gives."""
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload) for overload in packet.overloads() if "out" not in overload]


TABLED = sorted(set(_TABLE) - OLD_OPS)


@pytest.mark.parametrize("name", TABLED)
def test_views_are_those_of_torchs_schemas(name: str) -> None:
    returns = [each._schema.returns[:1] for each in overloads(name)]
    aliases = [one.alias_info for result in returns for one in result if one.alias_info is not None]
    views = any(not alias.is_write for alias in aliases)
    assert is_view(f"aten::{name}") == ((views and name not in MOSTLY_COPIES) or name in VIEWS_UNKNOWN_TO_SCHEMA)


@pytest.mark.parametrize("name", sorted(set(TABLED) - BATCH_NORMS))
def test_writes_are_those_of_torchs_schemas(name: str) -> None:
    arguments = [each._schema.arguments for each in overloads(name)]
    writes = {
        tuple(at for at, one in enumerate(each) if one.alias_info is not None and one.alias_info.is_write)
        for each in arguments
    }
    assert op_row(f"aten::{name}").writes in writes


@pytest.mark.parametrize("name", [name for name in TABLED if not DROPOUT_INSIDE.search(name)])
def test_seeded_ops_are_not_deterministic(name: str) -> None:
    seeded = any(torch.Tag.nondeterministic_seeded in each.tags for each in overloads(name))
    assert op_row(f"aten::{name}").deterministic == (not seeded and not UNINITIALIZED.search(name))


@pytest.mark.parametrize("name", [name for name in CALLS if op_row(f"aten::{name}").deterministic])
def test_deterministic_ops_repeat_their_results(name: str) -> None:
    torch.manual_seed(1)
    first = CALLS[name]()
    torch.manual_seed(2)
    assert torch.equal(first, CALLS[name]())


def test_random_ops_differ_by_seed() -> None:
    torch.manual_seed(1)
    first = torch.ones(4, 3).normal_()
    torch.manual_seed(2)
    assert not torch.equal(first, torch.ones(4, 3).normal_())
    assert not op_row("aten::normal_").deterministic
