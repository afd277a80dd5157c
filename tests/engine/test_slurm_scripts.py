"""scripts/slurm-mini: it comes up twice as once, brings back what died, and ends only what it started."""

import os
import signal
import subprocess
from pathlib import Path

from tests.engine.conftest import SCRIPTS, Mini
from tests.engine.fake import running, until

DAEMONS = ("munged", "slurmctld", "slurmd.n1", "slurmd.n2")


def call(script: str, folder: Path) -> str:
    """What a script says on standard output."""
    done = subprocess.run([SCRIPTS / script, folder], check=True, capture_output=True, text=True, timeout=600)
    return done.stdout


def of(folder: Path) -> list[str]:
    """Command lines of the processes that name the folder, jobs' steps by their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            words = line + (process / "environ").read_bytes().decode(errors="replace") * line.startswith("slurmstepd")
        except OSError:
            continue
        if f"{folder}/" in words and int(process.name) != os.getpid():
            found.append(line)
    return found


def test_a_second_cluster_comes_and_goes_beside_the_first(mini: Mini, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    second = Mini(folder=folder)
    assert call("start.sh", folder) == f"{folder}\n"
    pids = {name: second.pid(name) for name in DAEMONS}
    call("start.sh", folder)
    assert pids == {name: second.pid(name) for name in DAEMONS}
    os.kill(pids["slurmd.n2"], signal.SIGKILL)
    until(lambda: not running(pids["slurmd.n2"]))
    call("start.sh", folder)
    assert second.pid("slurmd.n2") != pids["slurmd.n2"] and running(second.pid("slurmd.n2"))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    body = 'echo "$CUDA_VISIBLE_DEVICES" > seen; sleep 600'
    batch = ["sbatch", f"--chdir={tmp_path}", "--output=/dev/null", "--gres=gpu:2", f"--wrap={body}"]
    subprocess.run(batch, env=environment, check=True, capture_output=True)
    until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text() == "0,1\n")
    assert len(of(folder)) >= len(DAEMONS)
    call("stop.sh", folder)
    until(lambda: of(folder) == [])
    assert subprocess.run(["scontrol", "ping"], check=True, capture_output=True, text=True).stdout.count("UP") == 1
    assert all(running(mini.pid(name)) for name in DAEMONS)


def test_stop_ends_no_process_that_got_a_daemons_number(mini: Mini, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=mini\n")
    with subprocess.Popen(["sleep", "600"]) as other:
        (tmp_path / "slurmctld.process").write_text(f"{other.pid} 1\n")
        (tmp_path / "munged.process").write_text("")
        call("stop.sh", tmp_path)
        assert running(other.pid)
        other.kill()
