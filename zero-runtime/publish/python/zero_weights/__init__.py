"""Subscriber of the weights that a sharded training run publishes.

Every version is fetched whole and verified by BLAKE3 before any of it is given to the caller::

    with Subscriber("http://127.0.0.1:7000") as subscriber:
        for version in subscriber.versions():
            subscriber.apply(model, version)
"""

from .errors import Corrupt, GivenUp, Mismatch, Refused, Unreachable, WeightsError
from .subscriber import Subscriber
from .version import Files, Tensor, Version

__all__ = [
    "Corrupt", "Files", "GivenUp", "Mismatch", "Refused", "Subscriber", "Tensor", "Unreachable", "Version",
    "WeightsError",
]
