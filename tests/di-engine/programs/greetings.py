"""A task that all processes of a `ditask` run: they greet each other, and the first one ends the task when all know all.

usage: greetings.py, as the coordinator of such a unit: it ends when the first process reports
"""
import os
import socket
import time


def main():
    """The entry point that `ditask` calls in each process. PODS is the number of processes."""
    from ding.framework import task

    pods = int(os.environ["PODS"])
    with task.start():
        own = task.router.node_id
        known = {own: ",".join(task.router.labels)}
        complete = set()

        def receive(node, label, number):
            known[node] = label
            if number == pods:
                complete.add(node)

        def greet(_):
            task.emit("greeting", own, known[own], len(known), only_remote=True)
            time.sleep(0.1)
            # The others end when the first one does.
            task.finish = task.finish or own == 0 and len(complete) == pods - 1

        task.on("greeting", receive)
        task.use(greet)
        task.run()
    greeted = ", ".join(f"{node} {label}" for node, label in sorted(known.items()))
    print(f"all know all: {greeted}", flush=True)
    if own == 0 and "COORDINATOR_PORT" not in os.environ:
        report(greeted)


def report(line):
    """Sends a line to the coordinator, which may not listen yet."""
    host, port = os.environ["KUBERNETES_COORDINATOR_URL"].split(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(f"{line}\n".encode())
            return
        except OSError as error:
            print(f"cannot reach the coordinator: {error}", flush=True)
            time.sleep(1)


def wait_for_report():
    with socket.create_server(("", int(os.environ["COORDINATOR_PORT"]))) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile() as lines:
                # Probes connect, too, and send nothing.
                if line := lines.readline():
                    print(line, end="", flush=True)
                    return


if __name__ == "__main__":
    wait_for_report()
