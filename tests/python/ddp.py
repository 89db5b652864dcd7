"""Distributed training: two processes that torchrun starts, over gloo, with a model in
DistributedDataParallel."""

import json
import os
import socket
import subprocess
import sys

from common import (PACKAGE, PATIENCE, Daemon, environment, expect, expect_equal, folder, run)

WORKER = """
import json, os, sys
import torch
import torch.distributed as dist
import pinclient

dist.init_process_group("gloo")
rank = dist.get_rank()
del os.environ["RANK"], os.environ["WORLD_SIZE"]  # torch.distributed is to tell
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
loader = pinclient.Loader("synthetic:8:u8:101", 7, shuffle=True, device="cpu", drop_last=False)
seen = []
for epoch in range(2):
    loader.set_epoch(epoch)
    steps = [[], []]
    for batch in loader:
        optimizer.zero_grad()
        model(batch["data"].float() / 255).sum().backward()
        optimizer.step()
        steps[0].append(batch["index"].tolist())
        steps[1].append(batch["status"].tolist())
    seen.append(steps)
weights = [None, None]
dist.all_gather_object(weights, model.module.weight.tolist())
state = [loader.state_dict()]
dist.broadcast_object_list(state)
loader.load_state_dict(state[0])
resumed = next(iter(loader))["index"].tolist()
with open(os.path.join(sys.argv[1], f"rank{rank}"), "w") as file:
    json.dump({"seen": seen, "weights": weights, "resumed": resumed}, file)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_two_ranks():
    with Daemon() as daemon, folder() as path:
        worker = os.path.join(path, "worker.py")
        with open(worker, "w") as file:
            file.write(WORKER)
        env = environment(PINSERVE_SOCKET=daemon.socket, PYTHONPATH=PACKAGE, OMP_NUM_THREADS="1")
        # torch 1.13's torchrun does not know its own default of these two under Python 3.11.
        plain = ["--redirects", "2", "--tee", "2", "--log_dir", path]
        got = subprocess.run([sys.executable, "-B", "-m", "torch.distributed.run", *plain,
                              "--master_addr", "127.0.0.1", "--master_port", free_port(),
                              "--nproc_per_node", "2", worker, path], env=env, text=True,
                             capture_output=True, timeout=6 * PATIENCE)
        expect_equal(got.returncode, 0, got.stderr)
        ranks = []
        for rank in range(2):
            with open(os.path.join(path, f"rank{rank}")) as file:
                ranks.append(json.load(file))
        for epoch in range(2):
            (first, first_status), (second, second_status) = [r["seen"][epoch] for r in ranks]
            expect_equal((len(first), len(second)), (8, 8), "steps, on each rank")
            real = [i for index, status in zip(first + second, first_status + second_status)
                    for i, s in zip(index, status) if s == 0]
            expect_equal(sorted(real), list(range(101)), "each index on one rank, once")
        expect(ranks[0]["seen"][0] != ranks[0]["seen"][1], "epochs differ")
        expect_equal(ranks[0]["weights"][0], ranks[0]["weights"][1], "the model is one")
        expect(not set(ranks[0]["resumed"]) & set(ranks[1]["resumed"]), "one state serves both")


run([test_two_ranks])
