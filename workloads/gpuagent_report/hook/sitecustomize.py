"""The module that Python imports before any program: it starts the observation, then the site's own sitecustomize.

The agent copies it with gpuagent_report into the run directory, and puts their folder first in PYTHONPATH. It is read
by every Python, old ones too, so its syntax is that of Python 2.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))

try:
    if sys.version_info >= (3, 8):
        from gpuagent_report import observe

        observe.start()
except Exception:  # noqa: BLE001, S110 - the program runs all the same
    pass

# What follows finds everything as it would be without this folder, which only children get, through the environment.
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _FOLDER]
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401 - without another one Python takes this error for the usual one
