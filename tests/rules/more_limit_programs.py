"""Built programs on which limits decide, of rules about needless positions and numbers: see limit_programs.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.rules import test_kernel_patterns as patterns
from tests.rules.kernel_programs import NVJET, Op, program
from tests.rules.test_computed_weight import adapted, weight_normed
from tests.rules.test_encoder_in_loop import both
from tests.rules.test_fixed_length import layer
from tests.rules.test_full_size_update import NETWORK, added, cloned, spread
from tests.rules.test_full_spectrum import there_and_back
from tests.rules.test_lost_layout import broken as broken_layout
from tests.rules.test_needless_work import spectral
from tests.rules.test_picked_state import beams
from tests.rules.test_repeated_preparation import filtered, searched
from tests.rules.test_repeated_readers import attended
from tests.rules.test_repeated_weights import normed as rollout
from tests.rules.test_unread_results import BETWEEN, LARGE, refined
from tests.rules.test_what_fixes_do import residual
from traceanalyzer.model.trace import Trace

MORE_PROGRAMS: Mapping[str, Sequence[Callable[[], Trace]]] = {
    "unfused-pointwise": [
        lambda: program(
            [*patterns.loss(32_000), *patterns.pointwise(*[patterns.BIG] * 3), Op("aten::mm", NVJET, 100)]
        )
    ],
    "full-spectrum": [lambda: program(spectral()), there_and_back],
    "strided-copy": [lambda: program(broken_layout()), lambda: program(residual(kept=True)), attended],
    "data-movement": [patterns.reordering, beams],
    "computed-weight": [lambda: program(weight_normed()), lambda: program(adapted()), lambda: rollout(48, 6)],
    "repeated-preparation": [lambda: program(searched()), lambda: program(filtered())],
    "fixed-length": [lambda: program(layer([32, 1, 1, 512]), steps=4)],
    "unread-results": [lambda: program(refined(BETWEEN, after=[both("sub", LARGE)]))],
    "full-size-update": [
        lambda: program([NETWORK, *spread(), added()]),
        lambda: program([NETWORK, *cloned(), *cloned()]),
    ],
}
