"""An all-reduce between the pods of one learner. torchrun starts a process in each pod, and their sum ends the job.

usage: all_reduce.py coordinator PODS | learner
"""

import logging
import os
import socket
import sys
import time


def run_coordinator(pods):
    """Waits for the sum of the learner, and fails if it is wrong."""
    expected = sum(range(1, int(pods) + 1))
    with socket.create_server(("", int(os.environ["COORDINATOR_PORT"]))) as server:
        while not (total := receive_line(server)):
            pass  # a connection without a report, such as that of a probe
    logging.info("the sum of %s pods is %s", pods, total)
    if int(total) != expected:
        sys.exit(f"the sum is {total}, not {expected}")


def receive_line(server):
    connection, _ = server.accept()
    with connection, connection.makefile() as lines:
        return lines.readline().strip()


def run_learner():
    """Adds up the positions of all pods of the unit, from 1 on. The first one reports the sum."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    logging.info("rank %s of %s: the sum is %s", dist.get_rank(), dist.get_world_size(), total.item())
    if dist.get_rank() == 0:
        report(total.item())
    dist.barrier()


def report(total):
    """Sends the sum to the coordinator, which may not listen yet."""
    host, port = os.environ["KUBERNETES_COORDINATOR_URL"].split(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(f"{total}\n".encode())
            return
        except OSError as error:
            logging.info("cannot reach the coordinator: %s", error)
            time.sleep(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    role, *arguments = sys.argv[1:]
    {"coordinator": run_coordinator, "learner": run_learner}[role](*arguments)
