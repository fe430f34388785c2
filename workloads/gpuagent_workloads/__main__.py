"""`python -m gpuagent_workloads`."""

import sys

from gpuagent_workloads.cli import main

sys.exit(main(sys.argv[1:]))
