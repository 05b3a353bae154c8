"""The tests of everything."""

import os

# Workers share the cores: pools of threads, those of torch above all, would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
