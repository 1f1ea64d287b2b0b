"""A real SLURM of one node, on loopback and in folders of its own, for as long as the tests that ask for it."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
CONF = """
ClusterName=fca
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def install():
    """Have the programs, or skip the test."""
    if os.geteuid() != 0:
        pytest.skip("a SLURM of one's own needs root")
    if not all(map(shutil.which, PROGRAMS)):
        quiet = {"check": True, "capture_output": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        try:
            subprocess.run(["apt-get", "update"], **quiet)
            subprocess.run(["apt-get", "install", "-y", "slurmctld", "slurmd", "slurm-client", "munge"], **quiet)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no SLURM here, and none to be had: {error}")


def free_port():
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def end_with_tests():
    """In a server, before it starts: SIGTERM when the process of the tests dies, however that is."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def wait_until(true, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.1)


@pytest.fixture(scope="session")
def slurm():
    """The environment in which commands find this SLURM."""
    install()
    with tempfile.TemporaryDirectory(prefix="fca-slurm-", ignore_cleanup_errors=True) as name, ExitStack() as servers:
        folder = Path(name)
        for inner in ("state", "spool"):
            (folder / inner).mkdir()
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        conf = CONF.format(host=socket.gethostname(), folder=folder, ports=(free_port(), free_port()))
        (folder / "slurm.conf").write_text(conf)
        environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        files = [f"--{key}={folder}/munge.{key}" for key in ("socket", "pid-file", "log-file", "seed-file")]
        files[0] = f"--socket={folder}/munge.socket"

        def serve(*command):
            out = servers.enter_context((folder / f"{command[0]}.out").open("w"))
            server = subprocess.Popen(
                command, env=environment, stdout=out, stderr=out, preexec_fn=end_with_tests, start_new_session=True
            )
            servers.callback(server.wait, 20)
            servers.callback(server.terminate)
            return server

        serve("munged", "--foreground", "--force", f"--key-file={folder}/key", *files)
        wait_until((folder / "munge.socket").exists, lambda: (folder / "munged.out").read_text())
        serve("slurmctld", "-D", "-f", f"{folder}/slurm.conf")
        serve("slurmd", "-D", "-f", f"{folder}/slurm.conf")

        def is_idle():
            look = subprocess.run(["sinfo", "-ho", "%T"], env=environment, capture_output=True, text=True, check=False)
            return look.stdout.strip() == "idle"

        def logs():
            return "\n".join(path.read_text() for path in folder.glob("*.log"))

        wait_until(is_idle, logs)
        yield environment
        subprocess.run(["scancel", "--me"], env=environment, check=False)
