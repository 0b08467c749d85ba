"""Python in the pods of a DIJob: change its replicas, and serve the life-cycle handles of a worker."""

from .replicas import EndpointError, EndpointUnavailable, ReplicaClient, Replicas
from .worker import Worker

__all__ = ["EndpointError", "EndpointUnavailable", "ReplicaClient", "Replicas", "Worker"]
__version__ = "0.1.0"
