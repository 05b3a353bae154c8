"""Records traces with torch.profiler: on a GPU, or on the CPU without a GPU lane.

Needs torch 2.4 or later and nothing else. torch is imported inside functions, so that
`python -m capture --list` and `--help` answer on a machine that has no torch.
"""
