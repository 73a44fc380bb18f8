"""Small models fit faster on one thread: OpenMP's busy-waiting threads would compete with test servers."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
