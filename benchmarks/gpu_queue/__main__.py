"""Run the queue."""

import sys

from benchmarks.gpu_queue import main

sys.exit(main())
