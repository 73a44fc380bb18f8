"""Small models fit faster on one thread: OpenMP's threads would spin against the other tests' servers."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
