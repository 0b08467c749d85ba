"""CartPole as a DIJob with PyTorch: collectors play, a learner trains, and a coordinator adds and connects them.

usage: cartpole.py coordinator TARGET_RETURN | collector | learner
"""

import io
import json
import logging
import socket
import sys
import threading
import time
import xmlrpc.client
from collections import deque
from xmlrpc.server import SimpleXMLRPCServer

import torch
from di_orchestrator import ReplicaClient, Worker
from torch.distributions import Categorical

CARTS, MAX_STEPS, DISCOUNT = 16, 500, 0.99
DATA_PORT_OFFSET = 100  # the port of the replica itself has the life-cycle handles
policy = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))


def run_coordinator(target_return):
    """Adds replicas, sends the list of collectors to the learner, and ends the job when the policy is good enough."""
    client = ReplicaClient.from_env()
    with Worker({"target_return": float(target_return)}) as worker:
        newest = deque([client.add(collectors=2, learners=1)], maxlen=1)
        threading.Thread(target=watch_replicas, args=(client, newest), daemon=True).start()
        for config in worker:
            time.sleep(0.2)
            for learner in newest[0].learners[:1]:
                if report := call(learner, "train_with", newest[0].collectors):
                    progress = json.loads(report)
                    samples = progress["samples"] - worker.current_report["samples"]
                    worker.report(samples=max(samples, 0), **progress["stats"])
            mean_return = worker.current_report["stats"].get("mean_return", 0)
            if mean_return >= config.get("target_return", 475):
                logging.info("solved: mean return %.1f over 100 episodes", mean_return)
                break


def watch_replicas(client, newest):
    known = set()
    for replicas in client.watch():
        listed = {*replicas.collectors, *replicas.learners}
        for address in sorted(listed ^ known):
            logging.info("%s %s", address, "joined" if address in listed else "left")
        known = listed
        newest.append(replicas)


def run_collector():
    """Plays once after each exchange with the learner. If these are frequent, it uses the newest parameters."""
    parameters, trajectories = deque(maxlen=1), deque(maxlen=1)

    def exchange(newest):
        parameters.append(newest)
        return trajectories.pop() if trajectories else b""

    with Worker() as worker:
        serve(worker.port, exchange)
        for _ in worker:
            time.sleep(0.02)
            if parameters:
                policy.load_state_dict(torch.load(io.BytesIO(parameters.pop()), weights_only=True))
                trajectory = play()
                trajectories.append(pack(trajectory))
                worker.report(samples=trajectory["alive"].sum(), batches=1)


def run_learner():
    """Trains with trajectories of the collectors that the coordinator has sent, and reports to the coordinator."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    collectors, returns = [], deque(maxlen=100)

    def train_with(addresses):
        collectors[:] = addresses
        return json.dumps(worker.current_report)  # integers of XML-RPC have 32 bits

    with Worker() as worker:
        serve(worker.port, train_with)
        for _ in worker:
            time.sleep(0.02)
            for address in list(collectors):
                if content := call(address, "exchange", pack(policy.state_dict())):
                    episodes = train(optimizer, **torch.load(io.BytesIO(content), weights_only=True))
                    returns.extend(episodes)
                    worker.report(samples=sum(episodes), batches=1, mean_return=sum(returns) / len(returns))


@torch.no_grad()
def play():
    """Plays an episode on each cart, with the equations of Gymnasium's CartPole-v1. The results are by step and cart."""
    state, alive = torch.rand(CARTS, 4) * 0.1 - 0.05, torch.ones(CARTS, dtype=torch.bool)
    steps = []
    while alive.any() and len(steps) < MAX_STEPS:
        action = Categorical(logits=policy(state)).sample()
        steps.append((state, action, alive))
        _, velocity, angle, spin = state.unbind(dim=1)
        push = (20 * action - 10 + 0.05 * spin**2 * angle.sin()) / 1.1
        turn = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        state = state + 0.02 * torch.stack([velocity, push - 0.05 * turn * angle.cos() / 1.1, spin, turn], dim=1)
        alive = alive & (state[:, 0].abs() < 2.4) & (state[:, 2].abs() < 0.2095)
    return dict(zip(("states", "actions", "alive"), map(torch.stack, zip(*steps))))


def train(optimizer, states, actions, alive):
    """Makes one step of REINFORCE, and returns the return of each episode. The baseline is the mean of all carts at a step."""
    returns = torch.zeros(len(alive) + 1, CARTS)
    for step in reversed(range(len(alive))):
        returns[step] = alive[step] * (1 + DISCOUNT * returns[step + 1])  # the reward is 1 per step
    baseline = returns[:-1].sum(dim=1, keepdim=True) / alive.sum(dim=1, keepdim=True)
    advantage = (returns[:-1] - baseline)[alive]
    log_probability = Categorical(logits=policy(states[alive])).log_prob(actions[alive])
    optimizer.zero_grad()
    (-(log_probability * advantage).mean() / (advantage.std() + 1)).backward()
    optimizer.step()
    return alive.sum(dim=0).tolist()


def serve(port, function):
    server = SimpleXMLRPCServer(("0.0.0.0", port + DATA_PORT_OFFSET), logRequests=False, use_builtin_types=True)
    server.register_function(function)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def call(address, function, argument):
    """Calls a function of another pod. The result is None while that pod starts or is lost: the next step calls it again."""
    host, port = address.rsplit(":", 1)
    server = xmlrpc.client.ServerProxy(f"http://{host}:{int(port) + DATA_PORT_OFFSET}", use_builtin_types=True)
    try:
        return getattr(server, function)(argument)
    except Exception as error:
        logging.debug("no response from %s: %s", address, error)


def pack(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    socket.setdefaulttimeout(5)  # a step must end soon, also if a pod does not respond
    role, *arguments = sys.argv[1:]
    {"coordinator": run_coordinator, "collector": run_collector, "learner": run_learner}[role](*arguments)
