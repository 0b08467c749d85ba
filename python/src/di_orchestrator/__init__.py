"""Submit DIJobs, change their replicas from their pods, and serve the life-cycle handles of a worker."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .replicas import EndpointError, EndpointUnavailable, ReplicaClient, Replicas
from .worker import Worker

if TYPE_CHECKING:
    from .client import DIClient, DIError

__all__ = ["DIClient", "DIError", "EndpointError", "EndpointUnavailable", "ReplicaClient", "Replicas", "Worker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported on first use: code in pods does not need the native module, and a checkout does not have it.
    if name in ("DIClient", "DIError"):
        return getattr(import_module(".client", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
