"""Built programs on which limits decide, of rules about needless positions and numbers: see limit_programs.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.rules import test_kernel_patterns as patterns
from tests.rules.kernel_programs import NVJET, Op, program
from tests.rules.test_fixed_length import layer
from tests.rules.test_full_size_update import NETWORK, added, cloned, spread
from traceanalyzer.model.trace import Trace

MORE_PROGRAMS: Mapping[str, Sequence[Callable[[], Trace]]] = {
    "unfused-pointwise": [
        lambda: program(
            [*patterns.loss(32_000), *patterns.pointwise(*[patterns.BIG] * 3), Op("aten::mm", NVJET, 100)]
        )
    ],
    "fixed-length": [lambda: program(layer([32, 1, 1, 512]), steps=4)],
    "full-size-update": [
        lambda: program([NETWORK, *spread(), added()]),
        lambda: program([NETWORK, *cloned(), *cloned()]),
    ],
}
