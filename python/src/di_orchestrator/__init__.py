"""Submit DIJobs, change their replicas from their pods, and serve the life-cycle handles of a worker."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .replicas import EndpointError, EndpointUnavailable, ReplicaClient, Replicas
from .worker import Worker

if TYPE_CHECKING:
    from .client import DIClient as DIClient
    from .client import DIError as DIError

# Without the names of the native module, so that `import *` works in a copy of the folder.
__all__ = ["EndpointError", "EndpointUnavailable", "ReplicaClient", "Replicas", "Worker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported on first use: code in pods does not need the native module, and a checkout does not have it.
    if name in ("DIClient", "DIError"):
        try:
            return getattr(import_module(".client", __name__), name)
        except ModuleNotFoundError as error:
            message = f"{name} needs the native module of the package: install the wheel of di-orchestrator"
            raise ImportError(message) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
