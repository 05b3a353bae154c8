"""A share of GPU time that is just the limit counts: "at least this share", says each of them."""

from __future__ import annotations

import pytest

from tests.rules.limit_cases import with_limit
from tests.rules.limit_programs import PROGRAMS, built
from traceanalyzer.rule.registry import find_rule

OF_OTHER_SHARES = {
    "unfused-pointwise",
    "strided-copy",
}  # what is saved is held against the limit, not what is said
WITHOUT_SHARE = {"padded-replay", "partly-used", "far-from-bound", "repeated-parameter-work"}
SLUGS = sorted(
    {slug for slug in PROGRAMS if hasattr(find_rule(slug).limits, "min_gpu_share")}
    - OF_OTHER_SHARES
    - WITHOUT_SHARE
)


@pytest.mark.parametrize("slug", SLUGS)
def test_work_that_takes_just_the_least_share_of_gpu_time_is_said(slug: str) -> None:
    rule, analysis = find_rule(slug), built(f"built/{slug}/0")
    shares = {float(hits.evidence["gpu_share"]) for hits in rule.hits(analysis)}
    assert shares
    for share in shares:
        just, less = (
            [hits.evidence["gpu_share"] for hits in with_limit(rule, "min_gpu_share", one).hits(analysis)]
            for one in (share, share * (1 + 1e-12))
        )
        assert share in just
        assert share not in less
