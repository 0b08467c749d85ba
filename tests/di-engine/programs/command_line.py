"""DI-engine's command line for replicas, `ding -m dist --add|--delete|--restart …`: the functions behind it.

usage: command_line.py NAMESPACE COORDINATOR (add|delete|restart) (collector|learner) (COUNT|POD) [CPUS MEMORY]

It runs curl in the coordinator's pod with the permissions of its kubeconfig; here that is the pod's service account.
"""
import sys
import tempfile
from pathlib import Path

import client

client.module("ditk", logging=None)
client.module("numpy")
client.package("ding.config", read_config_with_system=None, compile_config_parallel=None)
sys.modules["ding.worker"].__dict__.update(
    Coordinator=None, create_comm_collector=None, create_comm_learner=None, LearnerAggregator=None
)
sys.modules["ding.utils"].__dict__.update(set_pkg_seed=None)
client.package("ding.entry")
from ding.entry import dist_entry  # noqa: E402

account = "/var/run/secrets/kubernetes.io/serviceaccount"
kubeconfig = Path(tempfile.mkdtemp(), "kubeconfig")
kubeconfig.write_text(
    f"""\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: here}}}}]
clusters: [{{name: here, cluster: {{server: "https://kubernetes.default", certificate-authority: {account}/ca.crt}}}}]
users: [{{name: here, user: {{tokenFile: {account}/token}}}}]
"""
)
namespace, coordinator, verb, kind, target, *resources = sys.argv[1:]
cpus, memory = (int(resources[0]), resources[1]) if resources else (0, "")
where = dict(kubeconfig=str(kubeconfig), coordinator_name=coordinator, namespace=namespace)
if verb == "add":
    dist_entry.dist_add_replicas(kind, replicas=int(target), cpus=cpus, gpus=0, memory=memory, **where)
elif verb == "delete":
    dist_entry.dist_delete_replicas(kind, replicas=int(target), **where)
else:
    dist_entry.dist_restart_replicas(kind, restart_pod_name=target, **where)
