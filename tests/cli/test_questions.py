"""Questions that users ask of a trace: one command each, whose answer has the number that the raw events give."""

import shlex

import pytest
from click.testing import CliRunner

from tests.support.paths import REPOSITORY
from traceanalyzer.cli.app import cli

FIXTURES = REPOSITORY / "fixtures"
COPY, GAP, WAIT, TRAIN = (
    f"{FIXTURES}/{name}.json.gz" for name in ("exposed-copy/bad", "host-gap/bad", "implicit-sync/bad", "healthy/train")
)


def answer(command: str) -> str:
    """What the command prints, with single spaces."""
    result = CliRunner().invoke(cli, shlex.split(command), env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("command", "number"),
    [
        # Which op takes most GPU time? Five copies of 10.02 ms in all.
        (f"ops {COPY}", "aten::copy_ 5 calls 10.0 ms"),
        # At which line? All 45 kernels, 7.601 ms.
        (f"list kernels {COPY}", "moving.py(20): step 45 7.60 ms 169 µs 166 µs 174 µs 100.0 %"),
        # Which kernels run in step 6?
        (f"list kernels {COPY} --step 6", "moving.py(20): step 8 1.35 ms"),
        # What is copied to the device? 5 x 33,554,432 bytes.
        (f"list copies {COPY}", "Memcpy HtoD (Pageable -> Device): 160 MiB, aten::copy_"),
        # How fast? 160 MiB in 10.02 ms.
        (f"ops {COPY}", "17 GB/s"),
        # How long does the CPU wait for the GPU, and where? 40 calls, 6.460 ms.
        (f"list syncs {WAIT}", "reading_back.py(19): step 40 6.46 ms"),
        # Why is the GPU idle?
        (f"list gaps {GAP}", "host-code: step 34 5.77 ms 170 µs"),
        # Why is it idle from 1 to 1.1 ms? A gap of 200 µs begins there.
        (f"diagnose {GAP} --window 1ms:1.1ms", "idles while the CPU runs code between ops: 76.6 µs in total"),
        # What would a fix save? The repaired program takes 1.38 ms.
        (f"diagnose {COPY}", "finding 1: 3.35 -> about 1.38 ms (-59 %)"),
        # Did the change help?
        (f"compare {COPY} {COPY.replace('bad', 'good')}", "faster: 3.34 ms -> 1.38 ms a step (-58.6 %)"),
        # Is the input pipeline the problem? next() takes 4.29 to 4.61 ms.
        (f"diagnose {FIXTURES}/dataloader-stall/bad.json.gz", "a batch takes 4.46 ms"),
        # Does it compile again? The region's counter goes to 39.
        (f"diagnose {FIXTURES}/compile/bad.json.gz", "compiled 39 times since the program began"),
        # Does it allocate from the driver in each step? 20 cudaMalloc and 20 cudaFree in five steps.
        (f"diagnose {FIXTURES}/allocator-thrash/bad.json.gz --verbose", "or gives it back 8 times a step"),
        # Which share of the peak does it reach? Four GEMMs of 2 x 4096^3 operations in a step of 10.7 ms.
        (f"regions {FIXTURES}/no-tensor-cores/bad.json.gz", "MFU 76.9 % of 67 TFLOP/s fp32"),
        # Which op does the CPU spend its time in? 3.73 to 3.99 ms each step.
        (f"regions {FIXTURES}/host-hotspot/bad.json.gz", "86.7 % 3.72 ms 0 ns 3.68 ms 1 aten::randn"),
        # How busy is the GPU?
        (f"diagnose {TRAIN} --verbose", "busy 98.9 % of the window"),
        # Does this kernel use tensor cores?
        ("explain nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "units tensor cores"),
        # Is nothing there?
        (f"list copies {FIXTURES}/healthy/gemm.json.gz", "No copies recorded."),
    ],
)
def test_a_question_has_one_command(command: str, number: str) -> None:
    assert number in answer(command)
