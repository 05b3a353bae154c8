"""Names of ops and kernels as people say them: the one place that shortens them."""

import re
from collections.abc import Iterable
from functools import lru_cache

ENGINE = "autograd::engine::evaluate_function: "  # what the engine puts before the name of a node

_AROUND = re.compile(f"{ENGINE}|torch::autograd::(?=[A-Z])")
_ANONYMOUS = "(anonymous namespace)::"
_WRAPPED = re.compile(
    r"(?:cutlass\w*::Kernel2?<\s*|ck_tile::kentry<(?:\d+,\s*)*)(?:\w+::)*(\w+)"
    r"|cutlass\w*::(?:device_kernel<\s*(?:[\w:]+::enable_\w+<\s*)?(?:\w+::)*?(\w+::\w+|\w+)(?![\w:]))"
)
_LAMBDA = re.compile(r"\b(\w+?)(_cuda)?\(at::TensorIteratorBase")
_FUNCTOR = re.compile(r"\b(\w*?(?:Functor|ReduceOp|Ops)\w*)")
_PLAIN = re.compile(r"^(?:void )?(?:[\w:]|\(anonymous namespace\)::)*?(\w+)(?=[<(]|$)")
_MAX_LETTERS = 60
_MAX_LISTED = 6
_FRAME = re.compile(r"^(?:.*/)?([^/(]+\.pyx?)\(\d+\): (.+?)(?:\(\))?$")
# Functions whose names say nothing of what they do.
_ANY = re.compile(
    r"_?(?:forward|wrap(?:per|ped)|inner|_?call_impl|_fn|func|fn|run|call|decorate_context)|<\w+>"
    r"|__(?:call|getitem|getitems|getattr|getattribute|next|iter|enter|exit|len)__"
)
_FUNCTION = re.compile(r"(\.py\(\d+\): \w+)(?![\w(.])")


def short_ops(text: str) -> str:
    """A text without the words of autograd and torch.compile around names: `MmBackward0`, `compiled region 0/0`."""
    return _AROUND.sub("", text).replace("Torch-Compiled Region: ", "compiled region ")


def listed_ops(names: Iterable[str], width: int) -> str:
    """`abs, mean, clamp, ...`: up to six different ops in at most `width` letters, two at least."""
    ops = list(dict.fromkeys(short_ops(name).removeprefix("aten::") for name in names))
    for count in range(max(min(_MAX_LISTED, len(ops)), 2), 1, -1):
        text = f"{', '.join(ops[:count])}{', ...' * (count < len(ops))}"
        if len(text) <= width:
            break
    return text


def marked_functions(text: str) -> str:
    """A text whose functions of Python end in parentheses, as one called `step` must: `train.py(45): step()`."""
    return _FUNCTION.sub(r"\1()", text)


def says_nothing(frame: str) -> bool:
    """Whether `path/file.py(12): function` is a function like `forward` or `__call__`."""
    found = _FRAME.match(frame)
    return found is not None and _ANY.fullmatch(found[2]) is not None


def function_words(frame: str) -> str:
    """`update()` of `path/file.py(12): update`; with its file where its name says nothing: `llama.py: forward()`."""
    return _FRAME.sub(r"\1: \2()" if says_nothing(frame) else r"\2()", frame)


def short_op(op: str) -> str:
    """What the user called, without the engine's words; a kernel by its short name."""
    plain = short_ops(op)
    name = plain if "(" not in plain and "<" not in plain else short_kernel(plain)
    return name if len(name) <= _MAX_LETTERS else f"{name[:_MAX_LETTERS]}..."


@lru_cache(maxsize=4_096)
def short_kernel(kernel: str) -> str:
    """`vectorized_elementwise_kernel(tanh_kernel)`: a kernel's name without namespaces and template arguments."""
    wrapped = _WRAPPED.search(kernel)
    if wrapped:
        return (wrapped[1] or wrapped[2])[:_MAX_LETTERS]
    plain = _PLAIN.search(kernel)
    if plain is None or "<" not in kernel:
        return _bare(kernel).partition("(")[0].rstrip()[:_MAX_LETTERS]
    inner = _LAMBDA.search(kernel, plain.end()) or _FUNCTOR.search(kernel, plain.end())
    return f"{plain[1]}({inner[1]})"[:_MAX_LETTERS] if inner else plain[1][:_MAX_LETTERS]


def plain_kernel(name: str) -> str:
    """A kernel's name without its arguments and what C++ puts around it: `at::native::reduce_kernel<512, 1, x>`."""
    plain = _bare(name)
    begin = _arguments(plain) if plain.endswith(")") else 0
    return plain[:begin] if begin and plain[begin - 1] != " " else plain  # `Memset (Device)` has none


def _bare(name: str) -> str:
    return name.removeprefix("void ").replace(_ANONYMOUS, "")


def _arguments(name: str) -> int:
    """Where the parenthesis opens that the last character closes; 0 where none does."""
    depth = 0
    for place in range(len(name) - 1, 0, -1):
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return place
    return 0


def block_words(calls: float, name: str, width: int = 80) -> str:
    """`64 x (abs, mean, clamp, ...)`: a repeated block in words, in at most `width` letters with two ops or more."""
    room = width - len(repeated_words(calls, "")) - len("()")
    return repeated_words(calls, listed_ops(name.split(", "), room))


def repeated_words(calls: float, ops: str) -> str:
    """`64 x (select, lstm_cell)`: several ops stand in parentheses, or the number would count the first alone."""
    return f"{calls:,.0f} x " + (f"({ops})" if ", " in ops else ops)
