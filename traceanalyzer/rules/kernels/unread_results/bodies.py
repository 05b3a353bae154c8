"""Which ops of an iteration make only what no later op reads."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceanalyzer.roofline.convolutions import nth
from traceanalyzer.roofline.made import UNREADABLE, made
from traceanalyzer.roofline.results import PRODUCTS, product_of, result_of
from traceanalyzer.tensors.signatures import Shape, Signature, tensors
from traceanalyzer.timeline.names import VIEWING_OP

_ACTIVATION = re.compile(r"^aten::(relu6?|silu|mish|elu|selu|leaky_relu|hard\w+)_$")
_RANDOM = re.compile(r"^aten::(\w*dropout|bernoulli|\w*rand|normal|multinomial)")
_INDEXED = re.compile(
    r"^aten::_?(unsafe_)?index(_put(_impl)?)?_?$"
)  # by a list of tensors, which may not be recorded
_INPUTS = {  # how many an op has; one more is the tensor that it writes into
    **dict.fromkeys(("mm", "bmm", "matmul", "mul", "div"), 2),
    **dict.fromkeys(("add", "sub", "rsub", "linear"), 3),
    **dict.fromkeys(("addmm", "baddbmm"), 5),
}


@dataclass(frozen=True, slots=True)
class Made:
    """Shapes that an op reads, how often each, and what it makes.

    Attributes:
        makes: None where that is not known, or where the op does more than to make it.
        views: whether it only views, or copies what it would view.
        reads_more: whether it reads tensors that are not recorded, such as indices.
    """

    reads: Mapping[Shape, int]
    makes: Shape | None
    views: bool
    reads_more: bool

    @classmethod
    def of(cls, op: Signature, *, hands_out: bool) -> Made:
        """Of an op.

        Args:
            hands_out: whether it copies to the host or the device, or communicates.
        """
        shape = None if hands_out else _result(op)
        indexed = _INDEXED.match(op.name) is not None and op.dims[1:2] in ((), ([],))
        return cls(Counter(tensors(op)), shape or None, VIEWING_OP.search(op.name) is not None, indexed)


@dataclass(frozen=True, slots=True)
class Block:
    """Ops of an iteration that only make what no later op reads.

    Attributes:
        makes: shape of what the last of them makes.
        places: their positions in the iteration, the last op's first. Those after it belong to the iteration before.
    """

    makes: Shape
    places: list[int]


@dataclass(frozen=True, slots=True)
class Body:
    """The ops of one iteration in order: a ring, as the first of them follow the last ones of the iteration before.

    Attributes:
        spent_ns: GPU time of each.
        listed: shapes of which one op of the trace reads as many tensors as there are iterations.
    """

    ops: Sequence[Made]
    spent_ns: Sequence[float]
    listed: frozenset[Shape]

    def blocks(self, live_share: float) -> list[Block]:
        """Those that nothing reads; each op is in one of them at most. None where an op may read anything.

        Args:
            live_share: of a block's GPU time, what other ops between its first and last one may take at most.
        """
        if any(op.reads_more for op in self.ops):
            return []
        balance: Counter[Shape] = Counter()
        for op in self.ops:
            balance.subtract(op.reads)
            if op.makes is not None:
                balance[op.makes] += 1
        found: list[Block] = []
        claimed: set[int] = set()
        for last in range(len(self.ops) - 1, -1, -1):
            shape = self.ops[last].makes
            if shape is None or balance[shape] <= 0 or last in claimed:
                continue
            places = self._before(last, live_share)
            if not places or not claimed.isdisjoint(places):
                continue
            own = set(places)
            if all(at in own for at, op in enumerate(self.ops) if shape in op.reads):
                found.append(Block(shape, places))
                claimed |= own
        return found

    def carries(self, own: set[int], last: int) -> bool:
        """Whether others read what others made in the iteration before: more tensors of a shape than were made since.

        Args:
            own: positions of ops that nothing reads.
            last: position of the last of them.
        """
        order = self._after(last)
        handed = {self.ops[at].makes for at in order if at not in own and not self.ops[at].views}
        return any(
            shape in handed and order[distance - 1] not in own
            for shape, distance in self._escapes(last).items()
        )

    def _after(self, last: int) -> list[int]:
        return [*range(last + 1, len(self.ops)), *range(last + 1)]

    def _before(self, last: int, live_share: float) -> list[int]:
        """Positions of the op and of those before it that make nothing for others, back to where others take over."""
        escapes, wanted = self._escapes(last), set(self.listed)
        places: list[int] = []
        dead = live = 0.0
        whole, best = sum(self.spent_ns), 0
        for back, at in enumerate(reversed(self._after(last))):
            op = self.ops[at]
            if (
                op.makes is None
                or op.makes in wanted
                or escapes.get(op.makes, len(self.ops)) < len(self.ops) - back
            ):
                wanted.update(op.reads)
                live += self.spent_ns[at]
                if not places or live > live_share * whole:
                    break
                continue
            places.append(at)
            dead += self.spent_ns[at]
            best = len(places) if live <= live_share * dead else best
        return places[:best]

    def _escapes(self, last: int) -> dict[Shape, int]:
        """How many ops after a position the first one is that reads more tensors of a shape than were made since."""
        since: Counter[Shape] = Counter()
        found: dict[Shape, int] = {}
        for distance, at in enumerate(self._after(last), 1):
            for shape, times in self.ops[at].reads.items():
                if times > since[shape]:
                    found.setdefault(shape, distance)
            if (makes := self.ops[at].makes) is not None:
                since[makes] += 1
        return found


def _result(op: Signature) -> Shape | None:
    """Shape of an op's result; None where it is not known, and where the op writes to a tensor or draws at random."""
    name = op.name.removeprefix("aten::")
    if name == op.name or _RANDOM.match(op.name) or len(op.dims) > _INPUTS.get(name, len(op.dims)):
        return None
    if name.endswith("_") and not _ACTIVATION.match(op.name):
        return None
    if name in PRODUCTS:
        return product_of(op)
    try:
        return made(op) or result_of(op) or _rearranged(op, name)
    except UNREADABLE:
        return None


def _rearranged(op: Signature, name: str) -> Shape | None:
    """Of ops that put the same numbers into another order."""
    shape = op.shape(0)
    if name == "pixel_shuffle":
        times = int(op.scalar(1))
        return (*shape[:-3], shape[-3] // times**2, shape[-2] * times, shape[-1] * times)
    if name == "flatten":
        first, last = (int(op.scalar(at)) % len(shape) for at in (1, 2))
        return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    if name == "im2col":
        kernel, dilation, padding, stride = (op.scalar(at) for at in (1, 2, 3, 4))
        places = [
            (size + 2 * nth(padding, at) - nth(dilation, at) * (nth(kernel, at) - 1) - 1) // nth(stride, at)
            + 1
            for at, size in enumerate(shape[-2:])
        ]
        return (*shape[:-3], shape[-3] * nth(kernel, 0) * nth(kernel, 1), math.prod(places))
    return None
