#!/usr/bin/env bash
# A throw-away Slurm cluster on this machine: one controller, two nodes with two fake GPUs each, no systemd. As root.
#
#   scripts/slurm-mini/start.sh [folder]    the folder holds all state; without one it is made and printed
#   source <folder>/env                     what sbatch and squeue need
#   scripts/slurm-mini/stop.sh <folder>     ends what this started
#
# A second call brings back what has died. ACCOUNTING=1 adds MariaDB and slurmdbd, without which sacct answers nothing.
# Debian's packages are installed if they are absent; their own services stay off.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$(mktemp -d -t slurm-mini.XXXXXX)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
accounting=${ACCOUNTING:-0}
export PATH=$PATH:/usr/sbin
# shellcheck source=scripts/slurm-mini/daemon.sh
source "$here/daemon.sh"

install_packages() {
  local missing=() package made_policy=
  local wanted=(slurmctld slurmd slurm-client munge)
  [ "$accounting" = 0 ] || wanted+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core)
  for package in "${wanted[@]}"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    made_policy=1
  fi
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
    >"$folder/apt.log" 2>&1 || { tail -n 20 "$folder/apt.log" >&2; exit 1; }
  [ -z "$made_policy" ] || rm -f /usr/sbin/policy-rc.d
}

free_port() { # the first of ten ports in a row that nobody answers on
  local base port
  for base in $(seq 16800 10 17800); do
    for port in $(seq "$base" $((base + 9))); do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue 2
    done
    echo "$base"
    return
  done
  say "no ten free ports from 16800 to 17809"
  exit 1
}

configure() { # only once: a cluster keeps its ports
  [ ! -s "$folder/slurm.conf" ] || return 0
  local host port storage
  host=$(hostname -s)
  port=$(free_port)
  storage='AccountingStorageType=accounting_storage/none'
  if [ "$accounting" != 0 ]; then
    storage="AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1"
    storage+="\nAccountingStoragePort=$((port + 4))\nAccountingStoragePass=$folder/munge.socket"
    sed -e "s#@DIR@#$folder#g; s#@HOST@#$host#g; s#@PORT4@#$((port + 4))#; s#@PORT5@#$((port + 5))#" \
      "$here/slurmdbd.conf" | install -m 600 /dev/stdin "$folder/slurmdbd.conf"
  fi
  # A fake GPU is any character device; its index becomes CUDA_VISIBLE_DEVICES. Without a file the node is refused.
  printf '%s\n' AutoDetect=off "NodeName=n[1-2] Name=gpu Type=fake File=/dev/null" \
    "NodeName=n[1-2] Name=gpu Type=fake File=/dev/zero" >"$folder/gres.conf"
  printf 'export SLURM_CONF=%q\nexport PATH=$PATH:/usr/sbin\n' "$folder/slurm.conf" >"$folder/env"
  install -d -m 700 "$folder/state" "$folder/spool.n1" "$folder/spool.n2"
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  sed -e "s#@DIR@#$folder#g; s#@HOST@#$host#g; s#@PORT@#$port#; s#@PORT1@#$((port + 1))#; s#@PORT2@#$((port + 2))#" \
    -e "s#^@ACCOUNTING@#$storage#" "$here/slurm.conf" >"$folder/slurm.conf.new"
  mv "$folder/slurm.conf.new" "$folder/slurm.conf"
}

start_accounting() {
  [ -s "$folder/slurmdbd.conf" ] || return 0
  local port
  port=$(sed -n 's/^StoragePort=//p' "$folder/slurmdbd.conf")
  if [ ! -d "$folder/mysql/mysql" ]; then
    mariadb-install-db --no-defaults --user=root --datadir="$folder/mysql" --auth-root-authentication-method=normal \
      --skip-test-db --innodb-log-file-size=8M >"$folder/mariadb-install.log" 2>&1
  fi
  start mariadbd mariadbd --no-defaults --user=root --datadir="$folder/mysql" --socket="$folder/mysql.sock" \
    --pid-file="$folder/mariadbd.pid" --bind-address=127.0.0.1 --port="$port" --skip-grant-tables --skip-log-bin \
    --innodb-log-file-size=8M --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 --performance-schema=OFF
  wait_for 120 mariadbd test -S "$folder/mysql.sock"
  start slurmdbd env SLURM_CONF="$SLURM_CONF" slurmdbd -D
  wait_for 120 slurmdbd sacctmgr -n list cluster
  sacctmgr -n list cluster format=cluster | grep -qw mini || sacctmgr -i add cluster mini >/dev/null
}

all_idle() {
  [ "$(sinfo -h -N -p debug -t idle,mixed,allocated -o %N | sort -u | wc -l)" = 2 ]
}

install_packages
configure
export SLURM_CONF=$folder/slurm.conf
start munged munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
wait_for 60 munged munge -n --socket="$folder/munge.socket"
start_accounting
start slurmctld slurmctld -D -f "$SLURM_CONF"
wait_for 120 slurmctld scontrol ping
for node in n1 n2; do start "slurmd.$node" slurmd -D -f "$SLURM_CONF" -N "$node"; done
for node in $(sinfo -h -N -p debug -t down,drain -o %N | sort -u); do
  scontrol update nodename="$node" state=resume 2>/dev/null || true # an earlier failure left it so
done
wait_for 120 "both nodes" all_idle
say "up in $SECONDS s; source $folder/env"
echo "$folder"
