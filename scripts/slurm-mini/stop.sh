#!/usr/bin/env bash
# Ends the cluster of start.sh: its jobs, then its daemons, each by its own pid; its folder stays.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: stop.sh <folder of start.sh>}
[ -s "$folder/slurm.conf" ] || { echo "slurm-mini: $folder: no cluster of start.sh" >&2; exit 2; }
folder=$(cd "$folder" && pwd)
export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm.conf
# shellcheck source=scripts/slurm-mini/daemon.sh
source "$here/daemon.sh"

if alive slurmctld && timeout 3 scontrol ping >/dev/null 2>&1; then
  timeout 5 scancel --me 2>/dev/null
  for _ in $(seq 150); do # a cancelled job has KillWait to end
    [ -n "$(timeout 3 squeue -h -o %i 2>/dev/null)" ] || break
    sleep 0.1
  done
fi
for name in slurmd.n1 slurmd.n2 slurmctld slurmdbd mariadbd munged; do stop "$name"; done
# A node that was killed leaves the steps of its jobs behind; they carry the folder in their environment.
for step in /proc/[0-9]*; do
  grep -qa '^slurmstepd' "$step/cmdline" 2>/dev/null || continue
  tr '\0' '\n' <"$step/environ" 2>/dev/null | grep -qx "SLURM_CONF=$folder/slurm.conf" && kill -9 "${step#/proc/}"
done
exit 0
