"""The daemon as the service runs it: an ordinary user with CAP_SETUID and CAP_SETGID and nothing
else, and clients of several users and pid namespaces. Each reads what it may read itself, by its
own name, and nothing else."""

import array
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import images
import rawpeer
from daemon import (CONSUME, PATIENCE, PINCTL, PINSERVED, Daemon, environment, expect, expect_equal,
                    folder, have_driver, no_other_users, run, wait_for)
from rawpeer import RawPeer, message

SERVICE, ANNA, BERTA, TEAM = 64001, 64002, 64003, 64004
CAPS = "+setuid,+setgid"
AS_SERVICE = ["setpriv", f"--reuid={SERVICE}", f"--regid={SERVICE}", "--clear-groups",
              f"--inh-caps={CAPS}", f"--ambient-caps={CAPS}", f"--bounding-set=-all,{CAPS}",
              "--no-new-privs"]
ON_HOST = ["--device", "host", "--image", "random-crop:16", "--batch", "4"]


def who(uid, groups=()):
    return {"user": uid, "group": uid, "extra_groups": list(groups)}


def service(*settings, driver=False):
    daemon = Daemon("daemon.socket_mode=0666", *settings, driver=driver, prefix=AS_SERVICE)
    os.chown(daemon.folder, SERVICE, SERVICE)
    os.chmod(daemon.folder, 0o755)
    return daemon


def make_folder(path, owner, group, mode, each=6):
    """Class folders that everybody may list, with files for their owner."""
    os.makedirs(path, exist_ok=True)
    images.make_folder(path, classes=2, each=each)
    os.chmod(path, 0o755)
    for base, _, files in os.walk(path):
        os.chown(base, owner, group)
        for name in files:
            os.chown(os.path.join(base, name), owner, group)
            os.chmod(os.path.join(base, name), mode)


def train(daemon, path, user):
    return daemon.consume("--source", f"folder:{path}", *ON_HOST, "--epochs", "3", **user)


def events(process):
    output, _ = process.communicate(timeout=PATIENCE)
    return [json.loads(line) for line in output.splitlines()]


def check_trained(got, what):
    expect_equal([e for e in got if e["event"] == "error"], [], what)
    expect_equal(len([e for e in got if e["event"] == "batch"]), 9, f"{what}: batches")


def check_refused(got, uid, what):
    expect_equal(got[-1]["event"], "error", what)
    expect_equal(got[-1]["code"], -13, f"{what}: EACCES: {got[-1]}")
    expect(".jpg" in got[-1]["text"] and f"uid {uid}" in got[-1]["text"],
           f"{what}: by name: {got[-1]['text']}")


def capabilities(pid):
    with open(f"/proc/{pid}/status") as file:
        rows = dict(line.split(":", 1) for line in file)
    return {name: int(rows[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


def test_each_user_reads_its_own_files():
    with folder() as path, service("workers.per_numa_node=2") as daemon:
        os.chmod(path, 0o755)
        setuid_setgid = 1 << 6 | 1 << 7
        expect_equal(capabilities(daemon.process.pid)["CapEff"], setuid_setgid, "as the service")
        folders = {}
        for uid in (ANNA, BERTA):
            folders[uid] = f"{path}/{uid}"
            make_folder(folders[uid], uid, uid, 0o600)
        for _ in range(3):
            both = {uid: train(daemon, folders[uid], who(uid)) for uid in folders}
            wrong = train(daemon, folders[ANNA], who(BERTA))
            for uid, process in both.items():
                check_trained(events(process), f"uid {uid}, its own")
            check_refused(events(wrong), BERTA, "the other's")
            check_refused(events(train(daemon, folders[BERTA], who(ANNA))), ANNA, "the other's")


def test_the_daemons_own_files_are_not_a_clients():
    with folder() as path, service() as daemon:
        os.chmod(path, 0o755)
        make_folder(f"{path}/own", SERVICE, SERVICE, 0o600)
        check_refused(events(train(daemon, f"{path}/own", who(ANNA))), ANNA, "the daemon's files")


def operate(daemon, uid, *arguments):
    """pinctl as that user: its exit status and its error."""
    got = subprocess.run([PINCTL, "--socket", daemon.socket, *arguments], env=daemon.env, cwd="/",
                         capture_output=True, text=True, check=False, timeout=PATIENCE, **who(uid))
    return got.returncode, got.stderr


def test_who_may_evict_and_drain():
    spec = ["--source", "synthetic:8", "--device", "host", "--step-ms", "5", "--epochs", "1000000"]
    with service() as daemon:
        for uid, by in ((ANNA, f"uid {ANNA}"), (0, "uid 0 (root)"),
                        (SERVICE, f"uid {SERVICE} (the daemon's user)")):
            process = daemon.consume(*spec, **who(ANNA))
            wait_for(lambda: [row for row in daemon.jobs() if row["state"] == "running"], "a job")
            job = daemon.jobs()[0]["job"]
            status, error = operate(daemon, BERTA, "evict", str(job))
            expect(status == 1 and f"job {job} is of uid {ANNA}" in error
                   and f"not uid {BERTA}" in error, f"a stranger: {status} {error}")
            expect_equal(operate(daemon, uid, "evict", str(job)), (0, ""), f"uid {uid}")
            last = events(process)[-1]
            expect_equal((last["code"], last["text"]), (-125, f"job {job} was evicted by {by}"),
                         "what its client hears")
            wait_for(lambda: not daemon.jobs(), "the job ends")
        for undo in ([], ["--undo"]):
            for uid in (ANNA, BERTA):
                status, error = operate(daemon, uid, "drain", "--device", "host", *undo)
                expect(status == 1 and f"not uid {uid}" in error, f"a user: {status} {error}")
            for uid in (SERVICE, 0):
                expect_equal(operate(daemon, uid, "drain", "--device", "host", *undo), (0, ""),
                             f"uid {uid} {undo}")
            got = daemon.ask("devices")["devices"][0]["state"]
            expect_equal(got, "serving" if undo else "drained", "its state")


def test_two_users_run_one_each():
    """By hand, on the default socket; one that is killed is in nobody's way."""
    with folder() as path:
        os.chmod(path, 0o755)

        def start(uid):
            own = f"{path}/{uid}"
            if not os.path.isdir(own):
                os.mkdir(own, 0o700)
                os.chown(own, uid, uid)
            return subprocess.Popen(
                [PINSERVED, "--config", "/dev/null", "--set", "device.use=host"],
                env=environment(XDG_RUNTIME_DIR=own), stderr=subprocess.DEVNULL, cwd="/",
                **who(uid))

        def status(uid):
            got = subprocess.run([PINCTL, "--socket", f"{path}/{uid}/pinserve.sock", "--json",
                                  "status"], env=environment(), capture_output=True, text=True,
                                 check=False)
            return json.loads(got.stdout) if got.returncode == 0 else None

        daemons = {uid: start(uid) for uid in (ANNA, BERTA)}
        try:
            for uid, process in daemons.items():
                wait_for(lambda u=uid: status(u), f"uid {uid} serves")
                expect_equal(status(uid)["pid"], process.pid, f"the daemon of uid {uid}")
            for _ in range(3):
                daemons[ANNA].kill()
                daemons[ANNA].wait()
                expect_equal(status(BERTA)["pid"], daemons[BERTA].pid, "the other goes on")
                daemons[ANNA] = start(ANNA)
                wait_for(lambda: status(ANNA), "it serves again")
        finally:
            for process in daemons.values():
                process.terminate()
        expect_equal([process.wait(PATIENCE) for process in daemons.values()], [0, 0], "their ends")


def test_the_names_of_bad_samples_are_the_users():
    with folder() as path, service() as daemon:
        os.chmod(path, 0o755)
        make_folder(path, ANNA, ANNA, 0o600)
        with open(f"{path}/c0/003.jpg", "wb"):
            pass
        client = daemon.consume("--source", f"folder:{path}", *ON_HOST, "--epochs", "1", "--bad",
                                "blank", "--wait", **who(ANNA))
        wait_for(lambda: '"token"' in client.stdout.readline(), "an epoch's end")
        job = str(daemon.jobs()[0]["job"])
        for uid in (ANNA, SERVICE):
            expect("c0/003.jpg" in daemon.pinctl("jobs", "--bad", job, **who(uid)).stdout,
                   f"uid {uid} sees it")
        expect("c0/003.jpg" in daemon.pinctl("jobs", "--bad", job).stdout, "root sees it")
        refused = daemon.pinctl("jobs", "--bad", job, check=False, **who(BERTA))
        expect_equal(refused.returncode, 1, "another user's pinctl")
        expect(f"job {job} is of uid {ANNA}, not of uid {BERTA}" in refused.stderr, refused.stderr)
        client.stdin.close()
        client.wait()


def test_groups_count():
    with folder() as path, service() as daemon:
        os.chmod(path, 0o755)
        make_folder(f"{path}/team", BERTA, TEAM, 0o640)
        check_trained(events(train(daemon, f"{path}/team", who(ANNA, [TEAM]))), "in the group")
        check_refused(events(train(daemon, f"{path}/team", who(ANNA))), ANNA, "not in the group")


def test_without_the_capabilities_it_says_so():
    with folder() as path:
        daemon = Daemon("daemon.socket_mode=0666",
                        prefix=["setpriv", f"--reuid={SERVICE}", f"--regid={SERVICE}",
                                "--clear-groups"])
        os.chown(daemon.folder, SERVICE, SERVICE)
        os.chmod(daemon.folder, 0o755)
        os.chmod(path, 0o755)
        make_folder(f"{path}/own", ANNA, ANNA, 0o644)
        with daemon:
            got = events(train(daemon, f"{path}/own", who(ANNA)))
            expect_equal(got[-1]["event"], "error", f"{got}")
            expect("CAP_SETUID" in got[-1]["text"], got[-1]["text"])


def test_the_devices_process_has_no_capabilities():
    if not have_driver():
        return
    with service(driver=True) as daemon:
        client = daemon.consume("--source", "synthetic:64:u8", "--batch", "4", "--device", "cuda:0",
                                "--hold", "1", "--batches", "1", "--wait", **who(ANNA))
        wait_for(lambda: '"batch"' in client.stdout.readline(), "a batch")
        with open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children") as file:
            children = [int(pid) for pid in file.read().split()]
        expect_equal(len(children), 1, "the device's process")
        expect_equal(set(capabilities(children[0]).values()), {0}, "its capabilities")
        client.communicate(timeout=PATIENCE)


def test_memory_that_is_about_to_come_back_is_waited_for():
    """A tenant that still has the region of the job that it just closed; there is no other room."""
    with Daemon("daemon.socket_mode=0666", "pool.max=64MiB", "pool.idle=100ms") as daemon:
        os.chmod(daemon.folder, 0o755)
        peer = RawPeer(daemon.socket)
        peer.send(rawpeer.synthetic_job())
        job = peer.expect(rawpeer.JOB_OPENED)[1][0]
        held = []
        while not held:
            _, control, _, _ = peer.socket.recvmsg(1 << 17, socket.CMSG_SPACE(64 * 4))
            for _, _, fds in control:
                held += array.array("i", fds)
        peer.send(message(rawpeer.CLOSE_JOB, (1, job), ident=3))
        body, leases = 0, []
        while body != rawpeer.DONE:
            body, fields = peer.receive()
            if body == rawpeer.BATCH_READY:
                leases.append([fields.get(number, [0])[0] for number in (2, 3)])
        for lease, generation in leases:
            peer.send(message(rawpeer.RELEASE, (1, job), (2, lease), (3, generation)))
        wait_for(lambda: not daemon.jobs(), "the job ends")
        threading.Timer(0.5, os.close, held).start()
        got = daemon.bench("--source", "synthetic:64:u8", "--batch", "4", "--batches", "5",
                           "--device", "host", **who(ANNA))
        expect_equal(got["batches"], 5, "batches of the next tenant")


# -- pid namespaces --------------------------------------------------------------------------------

def test_a_client_in_a_pid_namespace_of_its_own():
    with Daemon() as daemon:
        client = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", CONSUME, "--socket", daemon.socket,
             "--source", "synthetic:64:u8", "--batch", "4", "--device", "host", "--hold", "2",
             "--batches", "2", "--wait"], env=daemon.env, stdout=subprocess.PIPE,
            stdin=subprocess.PIPE, text=True)
        wait_for(lambda: any(job["leased"] >= 2 for job in daemon.jobs()), "two leases")
        client.kill()
        client.communicate()
        wait_for(lambda: not daemon.jobs(), "its job ends with its process")


def test_a_client_that_the_daemon_cannot_see_is_refused():
    with folder() as path:
        log = open(f"{path}/log", "wb")
        daemon = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", PINSERVED, "--socket", f"{path}/s",
             "--set", "device.use=host"], env=environment(), stderr=log)
        try:
            def connect():
                try:
                    return RawPeer(f"{path}/s", greet=False)
                except OSError:
                    return None
            peer = wait_for(connect, "the daemon listens")
            body, fields = peer.receive()
            expect_equal(body, rawpeer.ERROR, "the answer")
            expect(b"pid namespace" in fields[2][0], f"the text: {fields[2][0]}")
            expect(peer.gone(), "the connection ends")
        finally:
            with open(f"/proc/{daemon.pid}/task/{daemon.pid}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGTERM)
            expect_equal(daemon.wait(PATIENCE), 0, "its end")
            log.close()


def can_run():
    """Root, with the programs at hand, and a build folder that an ordinary user can enter."""
    if no_other_users():
        return no_other_users()
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        return "no setpriv, no unshare"
    tried = subprocess.run([*AS_SERVICE, PINSERVED, "--version"], env=environment(), check=False,
                           capture_output=True, cwd="/")
    if tried.returncode != 0:
        return f"{PINSERVED} cannot be run by another user: {tried.stderr.decode()}"
    return None


WHY_NOT = can_run()
if WHY_NOT:
    print("skipped:", WHY_NOT)
    sys.exit(77)
run([test_each_user_reads_its_own_files, test_the_daemons_own_files_are_not_a_clients,
     test_the_names_of_bad_samples_are_the_users, test_groups_count, test_two_users_run_one_each,
     test_who_may_evict_and_drain,
     test_without_the_capabilities_it_says_so,
     test_the_devices_process_has_no_capabilities,
     test_memory_that_is_about_to_come_back_is_waited_for, test_a_client_in_a_pid_namespace_of_its_own,
     test_a_client_that_the_daemon_cannot_see_is_refused])
