"""A share of GPU time that equals the limit counts, as each limit says: "at least this share"."""

from dataclasses import replace

import pytest

from tests.rules.recordings import RECORDINGS
from tests.support.cached_reports import analysed
from traceanalyzer.rule.registry import find_rule

# What is saved is compared with the limit, not the share in the evidence.
OTHER_SHARES = {"unfused-pointwise", "strided-copy"}
WITHOUT_SHARE = {"partly-used", "far-from-bound"}
SLUGS = [slug for slug in RECORDINGS if hasattr(find_rule(slug).limits, "min_gpu_share")]


@pytest.mark.parametrize("slug", sorted(set(SLUGS) - OTHER_SHARES - WITHOUT_SHARE))
def test_work_at_the_least_share_is_reported(slug: str) -> None:
    rule, analysis = find_rule(slug), analysed(RECORDINGS[slug])
    shares = {float(hits.evidence["gpu_share"]) for hits in rule.hits(analysis)}
    assert shares
    for share in shares:
        at_limit, above_share = (
            [
                hits.evidence.get("gpu_share")
                for hits in replace(rule, limits=replace(rule.limits, min_gpu_share=limit)).hits(analysis)
            ]
            for limit in (share, share * (1 + 1e-12))
        )
        assert share in at_limit
        assert share not in above_share
