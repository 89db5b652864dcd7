"""Epochs, shares and resuming: where a loader stands, and that another process goes on exactly
there."""

import json
import os
import signal

from common import (Daemon, ends, expect, expect_equal, loader, pinclient, raises, run,
                    script)

SOURCE = "synthetic:8:u8:40"


def indices(batches):
    return [i for batch in batches for i in batch["index"].tolist()]


def epoch_of(daemon, epoch, **options):
    """A whole epoch, as a loader sees it that begins there."""
    with loader(daemon, SOURCE, 4, shuffle=True, **options) as batches:
        batches.set_epoch(epoch)
        return indices(batches)


def test_passes_are_epochs():
    with Daemon() as daemon, loader(daemon, SOURCE, 4, shuffle=True) as batches:
        seen = []
        for epoch in range(3):
            expect_equal(batches.epoch, epoch, "epoch")
            seen.append(indices(batches))
            expect_equal(sorted(seen[-1]), list(range(40)), "indices")
        expect(seen[0] != seen[1] != seen[2], "shuffled anew")
        expect_equal([epoch_of(daemon, e) for e in range(3)], seen, "an epoch is its number's")


def test_set_epoch():
    with Daemon() as daemon, loader(daemon, SOURCE, 4, shuffle=True) as batches:
        jobs = [daemon.jobs()[0]["job"]]
        for epoch in (0, 1, 2):
            batches.set_epoch(epoch)
            expect_equal(indices(batches), epoch_of(daemon, epoch), f"epoch {epoch}")
        expect_equal(daemon.jobs()[0]["job"], jobs[0], "in order it costs nothing")
        for epoch in (7, 7, 1):
            batches.set_epoch(epoch)
            expect_equal(batches.epoch, epoch, "epoch")
            expect_equal(indices(batches), epoch_of(daemon, epoch), f"epoch {epoch}")


def test_a_pass_that_is_left():
    with Daemon() as daemon, loader(daemon, SOURCE, 4, shuffle=True) as batches:
        for batch in batches:
            if batch.step == 3:
                break
        expect_equal(batches.epoch, 0, "still")
        expect_equal(indices(batches), epoch_of(daemon, 1), "the next one begins the next epoch")
        steps = iter(batches)
        next(steps)
        batches.set_epoch(2)
        raises(RuntimeError, lambda: next(steps), "ended")
        expect_equal(indices(batches), epoch_of(daemon, 2), "set_epoch begins it again")
        for batch in batches:
            if batch.step == len(batches) - 1:
                break  # behind the last one, with its end not seen
        batches.set_epoch(4)
        expect_equal(indices(batches), epoch_of(daemon, 4), "behind the last batch")


def test_state_in_the_middle():
    with Daemon() as daemon, loader(daemon, SOURCE, 4, shuffle=True) as batches:
        first = []
        for batch in batches:
            first += batch["index"].tolist()
            if batch.step == 5:
                state = json.loads(json.dumps(batches.state_dict()))
                break
        with loader(daemon, SOURCE, 4, shuffle=True) as again:
            again.load_state_dict(state)
            expect_equal((again.epoch, len(again)), (0, 10), "where it stands")
            again.set_epoch(0)  # as training scripts do before each pass
            rest = indices(again)
            expect_equal(first + rest, epoch_of(daemon, 0), "the rest")
            again.set_epoch(1)
            expect_equal(indices(again), epoch_of(daemon, 1), "the epoch that follows")
        batches.load_state_dict(state)
        expect_equal(indices(batches), rest, "in the same loader")


def test_state_at_the_end():
    with Daemon() as daemon, loader(daemon, SOURCE, 4, shuffle=True) as batches:
        for batch in batches:
            inside = batches.state_dict()
        after = batches.state_dict()
        del batch
        for state, epoch, rest in ((inside, 0, []), (after, 1, epoch_of(daemon, 1))):
            batches.load_state_dict(state)
            expect_equal(batches.epoch, epoch, "epoch")
            expect_equal(indices(batches), rest, "what is left")
        batches.load_state_dict(inside)
        batches.set_epoch(1)
        expect_equal(indices(batches), epoch_of(daemon, 1), "the end is skipped")


def test_state_of_something_else():
    with Daemon() as daemon, loader(daemon, SOURCE, 4) as batches:
        state = batches.state_dict()
        with loader(daemon, "synthetic:9:u8:40", 4) as other:
            raises(pinclient.Error, lambda: other.load_state_dict(state), "synthetic:8:u8:40")
        with loader(daemon, SOURCE, 5) as other:
            raises(pinclient.Error, lambda: other.load_state_dict(state), "4", "5")
        raises(pinclient.Error, lambda: batches.load_state_dict({**state, "token": "x"}), "token")


TRAINER = """
import json, os, pinclient, signal, sys
rank, world, batch = map(int, sys.argv[1:4])
batches = pinclient.Loader("synthetic:8:u8:4000", batch, shuffle=True, device="cpu",
                           rank=rank, world_size=world, tensors="numpy")
if sys.argv[4]:
    batches.load_state_dict(json.loads(sys.argv[4]))
for batch in batches:
    print(json.dumps([batch["index"].tolist(), batches.state_dict()]), flush=True)
    if not sys.argv[4] and batch.step == 77:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_resumed():
    """Two ranks are killed in the middle of an epoch; three go on with rank 0's state: every
    sample came exactly once."""
    with Daemon() as daemon:
        seen, state = [], None
        for rank in range(2):
            process = script(daemon, TRAINER, rank, 2, 15, "")
            lines = ends(process, -signal.SIGKILL).splitlines()
            steps = [json.loads(line) for line in lines]
            expect_equal(len(steps), 78, "steps")
            seen += [i for index, _ in steps for i in index]
            state = state or steps[-1][1]
        for rank in range(3):
            process = script(daemon, TRAINER, rank, 3, 10, json.dumps(state))
            steps = [json.loads(line) for line in ends(process).splitlines()]
            expect_equal(len(steps), 134 - 78, "remaining steps")
            seen += [i for index, _ in steps for i in index]
        expect_equal(len(seen), 134 * 30, "with the padding of the last step")
        expect_equal(sorted(set(seen)), list(range(4000)), "every sample")
        expect_equal(len(seen) - len(set(seen)), 20, "nothing but the padding came twice")


# -- shares ----------------------------------------------------------------------------------------

class Mesh:
    """What a Loader asks of torch's DeviceMesh, which Debian's torch does not have: 2 x 3 x 2
    processes, of which this is (1, 2, 0)."""
    mesh_dim_names = ("replicate", "shard", "tp")
    ndim = 3
    place = (1, 2, 0)
    sizes = (2, 3, 2)

    def size(self, mesh_dim=None):
        return self.sizes[mesh_dim]

    def get_local_rank(self, mesh_dim=None):
        return self.place[self.mesh_dim_names.index(mesh_dim) if isinstance(mesh_dim, str)
                          else mesh_dim]


class Flat(Mesh):
    mesh_dim_names, ndim, place, sizes = None, 1, (3,), (4,)


class Named(Mesh):
    mesh_dim_names, ndim, place, sizes = ("dp", "tp"), 2, (1, 0), (2, 4)


def test_mesh():
    with Daemon() as daemon:
        def share(**options):
            with loader(daemon, SOURCE, 2, **options):
                job = daemon.jobs()[-1]
                return job["rank"], job["world"]

        expect_equal(share(mesh=Mesh(), mesh_dim="shard"), (2, 3), "by name")
        expect_equal(share(mesh=Mesh(), mesh_dim=1), (2, 3), "by number")
        expect_equal(share(mesh=Mesh(), mesh_dim=("replicate", "shard")), (5, 6), "two dimensions")
        expect_equal(share(mesh=Flat()), (3, 4), "the only one")
        expect_equal(share(mesh=Named()), (1, 2), "dp")
        raises(ValueError, lambda: share(mesh=Mesh()), "mesh_dim", "replicate")
        raises(ValueError, lambda: share(mesh=Flat(), rank=0, world_size=1), "mesh tells")
        expect_equal(share(), (0, 1), "alone")
        expect_equal(share(rank=1, world_size=2), (1, 2), "as given")
        os.environ.update(RANK="4", WORLD_SIZE="5")
        try:
            expect_equal(share(), (4, 5), "of the environment")
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]


run([test_passes_are_epochs, test_set_epoch, test_a_pass_that_is_left, test_state_in_the_middle,
     test_state_at_the_end, test_state_of_something_else, test_killed_and_resumed, test_mesh])
