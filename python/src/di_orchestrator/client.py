"""The client of a cluster, which submits DIJobs and follows them. Its operations are those of ``kubectl di``."""

from __future__ import annotations

import json
import os
from typing import Any, Collection, Iterator, Mapping, Optional, Union

from ._native import Client as _Client
from ._native import DIError

__all__ = ["DIClient", "DIError"]

Object = dict[str, Any]
"""An object of Kubernetes, such as a DIJob."""


class DIClient:
    """Submits, follows and changes jobs in a namespace. Several threads may use it, but no forked processes.

    Kubeconfig, credentials, validation and messages are those of ``kubectl di``. Each method raises DIError with the message of
    the command. Warnings of the API server are issued as UserWarning. Ctrl-C interrupts every call.

    Args:
        kubeconfig: file instead of those in KUBECONFIG, or ``~/.kube/config``. Without any, a pod uses its service account.
        context: context of the kubeconfig instead of the current one.
        namespace: namespace instead of the one of the context.
    """

    def __init__(
        self, kubeconfig: Union[str, os.PathLike[str], None] = None, context: Optional[str] = None,
        namespace: Optional[str] = None,
    ) -> None:  # fmt: skip
        self._client = _Client(kubeconfig, context, namespace)

    def create_job(self, manifest: Union[Mapping[str, Any], str, os.PathLike[str]]) -> str:
        """Creates a job, and returns its name.

        ``manifest`` is a dictionary, the path of a file or folder, or a text: several lines of YAML or JSON, or a line that
        begins with ``{``. It may have other objects too, such as an AggregatorConfig. The client validates all objects before
        it creates the first. If the API server then rejects one, those before it remain.
        """
        if isinstance(manifest, Mapping):
            return self._client.create_job(json.dumps(manifest), False)
        source = os.fspath(manifest)
        if source == "-":
            raise DIError("create_job does not read stdin; pass its text")
        is_text = isinstance(manifest, str) and ("\n" in source or source.lstrip().startswith("{"))
        return self._client.create_job(source, not is_text)

    def list_jobs(self) -> list[Object]:
        """Lists the jobs, in the order of their names."""
        return [_without_managed_fields(job) for job in json.loads(self._client.list_jobs())]

    def get_job(self, name: str) -> Object:
        """Reads a job. Its state is in ``["status"]["phase"]``, ``"reason"`` and ``"conditions"``."""
        return _without_managed_fields(json.loads(self._client.get_job(name)))

    def get_job_logs(self, name: str, role: Optional[str] = None, follow: bool = False) -> Iterator[str]:
        """Yields the lines of the log of the coordinator, or of all replicas of a role.

        ``role`` is ``collector``, ``learner``, ``aggregator``, ``ddp-learner`` or ``all``. Lines of several replicas begin with
        the name of the pod. With ``follow``, waits for pods and lines until the job has ended.
        """
        return self._client.get_job_logs(name, role or "coordinator", follow)

    def get_job_events(self, name: str) -> list[Object]:
        """Lists the events of a job and its replicas, oldest first."""
        return [_without_managed_fields(event) for event in json.loads(self._client.get_job_events(name))]

    def wait_for_job_status(
        self, name: str, status: Union[str, Collection[str]] = ("Succeeded",), timeout: Optional[float] = 600
    ) -> Object:
        """Waits until the phase of a job is one of these, and returns the job.

        Raises DIError as soon as the job has ended with another phase, and TimeoutError after this number of seconds; None
        means no limit.
        """
        phases = [status] if isinstance(status, str) else list(status)
        return _without_managed_fields(json.loads(self._client.wait_for_job_status(name, phases, timeout)))

    def scale(self, name: str, collectors: Optional[int] = None, learners: Optional[int] = None) -> None:
        """Sets the declared number of collectors, learners or both."""
        self._client.scale(name, collectors, learners)

    def suspend(self, name: str) -> None:
        """Suspends a job: the orchestrator deletes its pods."""
        self._client.set_suspended(name, True)

    def resume(self, name: str) -> None:
        """Resumes a suspended job: the orchestrator creates its pods again."""
        self._client.set_suspended(name, False)

    def restart(self, name: str) -> None:
        """Replaces the coordinator by a new one. Collectors and learners keep running."""
        self._client.restart(name)

    def delete_job(self, name: str) -> None:
        """Deletes a job. Its pods are deleted in the background."""
        self._client.delete_job(name)


def _without_managed_fields(item: Object) -> Object:
    item["metadata"].pop("managedFields", None)
    return item
