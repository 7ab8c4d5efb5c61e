"""A Slurm of one's own: all daemons on this machine, in one folder, on free ports.

By hand, as root, with Slurm and munge installed (Debian: slurm-wlm, munge):

    python tests/slurm_cluster.py start FOLDER     # prints the line that sets SLURM_CONF
    python tests/slurm_cluster.py stop FOLDER
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "srun")
_START_SECONDS = 30

# cred_expire: a requeued job starts again only after its credential has expired, which takes two
# minutes by default. config_overrides: more CPUs than the machine has. No cgroups: they would
# need the system's own daemons.
_CONF = """\
ClusterName=mcattn
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser={user}
SlurmdUser={user}
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
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Names of the programs that are not installed."""
    return [name for name in PROGRAMS if _program(name) is None]


def start(folder, cpus=8):
    """Start the daemons and wait until the node is idle; the path of slurm.conf."""
    folder = Path(folder).resolve()
    (folder / "state").mkdir(parents=True)
    (folder / "spool").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            folder=folder,
            host=socket.gethostname().split(".")[0],
            user=getpass.getuser(),
            ports=_free_ports(2),
            cpus=cpus,
        )
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge = {
        "key-file": key,
        "socket": folder / "munge.sock",
        "pid-file": folder / "munged.pid",
        "log-file": folder / "munged.log",
        "seed-file": folder / "munge.seed",
    }
    try:
        _run("munged", "--force", *(f"--{name}={path}" for name, path in munge.items()))
        _run("slurmctld", "-f", conf)
        _run("slurmd", "-N", "n1", "-f", conf)
        _wait_idle(folder, conf)
    except BaseException:
        stop(folder)
        raise
    return conf


def stop(folder):
    """Kill the jobs, then stop the daemons."""
    if (Path(folder) / "slurmctld.pid").exists():
        environment = {**os.environ, "SLURM_CONF": str(Path(folder).resolve() / "slurm.conf")}
        for words in (["scancel"], ["scancel", "--full", "--signal=KILL"]):
            _output([*words, f"--user={getpass.getuser()}"], environment)
        _wait_for(lambda: not _output(["squeue", "-h"], environment), 15)
    for name in ("slurmd", "slurmctld", "munged"):
        _end(Path(folder) / f"{name}.pid")


def _wait_idle(folder, conf):
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    idle = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
    if not _wait_for(lambda: _output(idle, environment) == "1", _START_SECONDS):
        logs = "\n".join(log.read_text()[-2000:] for log in sorted(Path(folder).glob("*.log")))
        raise RuntimeError(f"Slurm did not come up within {_START_SECONDS} s\n{logs}")


def _output(words, environment):
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def _wait_for(condition, seconds):
    """Whether a condition came true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return False


def _end(pid_file):
    """End the daemon that wrote a pid file and wait until it is gone."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text())
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if _wait_for(lambda: not Path(f"/proc/{pid}").exists(), seconds):
            return


def _program(name):
    """Path of a program; daemons live where an ordinary PATH may not look."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _run(name, *arguments):
    done = subprocess.run(
        [_program(name), *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}")


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    if sys.argv[1] == "start":
        print(f"export SLURM_CONF={start(sys.argv[2])}")
    else:
        stop(sys.argv[2])
