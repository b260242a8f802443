"""Run the queue; what runs is interrupted if this is ended."""

import signal
import sys

from benchmarks.gpu_queue import main

signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
sys.exit(main())
