"""The package itself: pip installs it from the tree, it finds the library, and it imports no
framework by itself."""

import importlib.util
import os
import shutil
import subprocess
import sys

import torch

from common import (PACKAGE, TREE, Daemon, ends, environment, expect, expect_equal, folder, images,
                    pinclient, raises, run, script)


def test_pip_installs_it():
    """Without a network, and without a trace in the tree."""
    if importlib.util.find_spec("pip") is None:
        print("no pip here")
        return
    with folder() as path, Daemon() as daemon:
        source = os.path.join(path, "source")
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
        target = os.path.join(path, "target")
        got = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation",
                              "--no-deps", "--no-index", "--target", target, source],
                             capture_output=True, text=True, timeout=120,
                             env=environment(PIP_DISABLE_PIP_VERSION_CHECK="1"))
        expect_equal(got.returncode, 0, got.stderr)
        wanted = sorted(n for n in os.listdir(os.path.join(PACKAGE, "pinclient"))
                        if n != "__pycache__")
        installed = os.path.join(target, "pinclient")
        expect_equal(sorted(n for n in os.listdir(installed) if n != "__pycache__"), wanted,
                     "files")
        process = script(daemon, "import pinclient; print(pinclient.__file__, "
                         "len(pinclient.Loader('synthetic:8:u8:26', 4, device='cpu')))",
                         env={"PYTHONPATH": target})
        expect_equal(ends(process).split(), [os.path.join(installed, "__init__.py"), "7"], "import")


def test_nothing_is_imported():
    """Neither torch nor NumPy, by a loader whose tensors nobody takes."""
    text = """
import sys, pinclient
with pinclient.Loader("synthetic:8:u8:26", 4, device="cpu") as batches:
    for batch in batches:
        tensor = batch["index"]
        pointer = tensor.pointer, tensor.__dlpack__()
print(type(tensor).__module__, *(name for name in ("torch", "numpy", "cupy", "jax")
                                 if name in sys.modules))
"""
    with Daemon() as daemon:
        expect_equal(ends(script(daemon, text)), "pinclient._tensor\n", "modules")


def test_torch_comes_when_asked_for():
    expect("pinclient.torch" not in sys.modules, "not by itself")
    expect(callable(pinclient.torch.pin), "pin")
    raises(AttributeError, lambda: pinclient.tensorflow, "tensorflow")


def test_no_library():
    text = "import pinclient\npinclient.Loader('synthetic:8', 4)"
    with Daemon() as daemon:
        process = script(daemon, text, env={"PINCLIENT_LIBRARY": "/no/lib.so"})
        _, errors = process.communicate(timeout=60)
        expect("PINCLIENT_LIBRARY" in errors and "/no/lib.so" in errors, errors)


def test_no_daemon():
    with Daemon() as daemon:
        text = "import pinclient\npinclient.Loader('synthetic:8', 4, device='cpu')"
        process = script(daemon, text, env={"PINSERVE_SOCKET": "/no/socket"})
        _, errors = process.communicate(timeout=60)
        expect("DaemonGone" in errors and "/no/socket" in errors, errors)
        private = script(daemon, text.replace("4,", "4, daemon='private',"),
                         env={"PINSERVED": "/no/pinserved"})
        _, errors = private.communicate(timeout=60)
        expect("DaemonGone: /no/pinserved" in errors, errors)


def test_versions_agree():
    with open(os.path.join(PACKAGE, "pyproject.toml")) as file:
        project = [line.split('"')[1] for line in file if line.startswith("version")]
    with open(os.path.join(TREE, "CMakeLists.txt")) as file:
        tree = file.read().partition("project(pinserve VERSION ")[2].split()[0]
    expect_equal((project, pinclient.__version__), ([tree], tree), "version")


def test_readme():
    """The program that the README shows trains two epochs, stops, and goes on."""
    with open(os.path.join(TREE, "README.md")) as file:
        section = file.read().partition("## Use it from Python\n")[2].partition("\n## ")[0]
    expect(len(section.splitlines()) <= 40, "the section is short")
    text = section.partition("```python\n")[2].partition("```")[0]
    for shown, here in (("1000 == 999", "3 == 2"), ("90)", "2)"), ("224", "16"), ("256", "4"),
                        ("/data/train", "train"), ("/data/val", "val")):
        expect(shown in text, f"the README shows {shown}")
        text = text.replace(shown, here)
    steps = []

    def train_step(image, label):
        expect_equal((image.dtype, tuple(image.shape), tuple(label.shape)),
                     (torch.bfloat16, (4, 3, 16, 16), (4,)), "what a step gets")
        steps.append(1)
        if len(steps) == 4:
            raise InterruptedError

    names = {"pinclient": pinclient, "torch": torch, "os": os, "tqdm": iter, "rank": 0,
             "model": torch.nn.Linear(1, 1), "train_step": train_step,
             "validate": lambda image, label, real: steps.append(int(real.sum()) * 1000)}
    with folder() as path, Daemon() as daemon:
        images.make_folder(os.path.join(path, "train"), classes=2, each=10)
        images.make_folder(os.path.join(path, "val"), classes=2, each=3)
        os.chdir(path)
        os.environ["PINSERVE_SOCKET"] = daemon.socket
        try:
            raises(InterruptedError, lambda: exec(text, names))
            exec(text, names)
        finally:
            os.chdir("/")
            del os.environ["PINSERVE_SOCKET"]
    check = [4000, 2000]
    expect_equal(steps, [1] * 4 + [1] * 2 + check + [1] * 5 + check, "steps behind step 3 of 5")


def test_documentation():
    """Whatever is public says what it is."""
    for name in pinclient.__all__:
        thing = getattr(pinclient, name)
        expect(not isinstance(thing, type) or (thing.__doc__ or "").strip(), f"{name} has no text")
        for method, value in vars(thing).items() if isinstance(thing, type) else ():
            if callable(value) and not method.startswith("_"):
                expect(value.__doc__, f"{name}.{method} has no text")


run([test_pip_installs_it, test_nothing_is_imported, test_no_library, test_no_daemon,
     test_versions_agree, test_readme, test_documentation])
