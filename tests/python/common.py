"""What the tests of the Python package have in common: the package and the library of this tree, a
daemon from tests/integration/daemon.py, and loaders that are at home there."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(TREE, "client", "python")
sys.path.insert(0, PACKAGE)
sys.path.insert(0, os.path.join(TREE, "tests", "integration"))

from daemon import (BIN, BUILD, PATIENCE, PINSERVED, SANITIZED, Daemon, Failed, environment, expect,  # noqa: E402,F401
                    expect_equal, folder, program, wait_for)
from daemon import run as run_tests  # noqa: E402
import images  # noqa: E402,F401

os.environ.setdefault("PINCLIENT_LIBRARY", program("client", "libpinclient.so.0"))
os.environ.setdefault("PINSERVED", PINSERVED)
os.environ["PYTHONPATH"] = PACKAGE

import pinclient  # noqa: E402

SMALL = "synthetic:8:u8:26"
LARGE = "synthetic:64:u8:65536"


def loader(daemon, source=SMALL, batch_size=4, **options):
    options.setdefault("device", "cpu")
    options.setdefault("tensors", "numpy")
    return pinclient.Loader(source, batch_size, daemon=daemon.socket, **options)


def raises(kind, call, *parts):
    """The call must raise this, with a text that has all parts."""
    try:
        call()
    except kind as error:
        for part in parts:
            expect(part in str(error), f"{part!r} is not in {str(error)!r}")
        return error
    raise Failed(f"{kind.__name__} was expected")


def job(daemon):
    """The one job that there is, as pinctl shows it."""
    jobs = daemon.jobs()
    expect_equal(len(jobs), 1, "jobs")
    return jobs[0]


def delivered(daemon):
    """Batches handed off so far: one more for each that was given back, as long as there are more
    to come."""
    return job(daemon)["delivered"]


def full(daemon):
    """The loader's depth of 4 batches is handed off, and no more can come."""
    wait_for(lambda: delivered(daemon) >= 4, "4 batches are ready")
    return delivered(daemon)


def script(daemon, text, *arguments, **options):
    """A Python program of its own, started with the daemon's socket in its environment."""
    env = environment(**{"PINSERVE_SOCKET": daemon.socket, **options.pop("env", {})})
    return subprocess.Popen([sys.executable, "-B", "-c", text, *map(str, arguments)], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def ends(process, status=0, seconds=60):
    output, errors = process.communicate(timeout=seconds)
    expect_equal(process.returncode, status, f"exit status; {errors}")
    return output


def run(tests):
    run_tests([guarded(test) for test in tests])


def guarded(test):
    """An exception that no test expects fails that test, and the others go on."""
    def call():
        try:
            test()
        except (Failed, subprocess.TimeoutExpired):
            raise
        except Exception as error:
            raise Failed(f"{type(error).__name__}: {error} (line "
                         f"{error.__traceback__.tb_next.tb_lineno})") from error
    call.__name__ = test.__name__
    return call
