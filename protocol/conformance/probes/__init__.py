"""Named, fixed conversations, for what users of such servers really reported. One module for each subject.

``PROBES`` has all of them by name; ``run_probe`` plays one. To add one, write a function that ``base.probe`` enters.
"""

from . import ends, errors, held, isolation, limits, memory, pairing, steer, streams, text, warm_up
from .base import PROBES, Probe, run_probe
from .talk import NotOffered, Talk

__all__ = [
    "PROBES",
    "NotOffered",
    "Probe",
    "Talk",
    "ends",
    "errors",
    "held",
    "isolation",
    "limits",
    "memory",
    "pairing",
    "run_probe",
    "steer",
    "streams",
    "text",
    "warm_up",
]
