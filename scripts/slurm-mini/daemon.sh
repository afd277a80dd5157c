# Sourced by start.sh and stop.sh, with `folder` set: daemons known by a pid and its start time, both in <name>.process.

say() { printf 'slurm-mini: %s\n' "$*" >&2; }

started_at() { # PID: when it started, in clock ticks since boot; a pid that is used again has another
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

alive() { # NAME: whether the very process that `start` made still runs; a zombie does not
  local pid since
  read -r pid since 2>/dev/null <"$folder/$1.process" || return 1
  [ -n "$since" ] && [ "$(started_at "$pid")" = "$since" ] &&
    [ -n "$(tr -d '\0' <"/proc/$pid/cmdline")" ]
}

start() { # NAME COMMAND...: in a session of its own, unless it runs already
  local name=$1 pid
  shift
  ! alive "$name" || return 0
  setsid "$@" </dev/null >>"$folder/$name.out" 2>&1 &
  pid=$!
  echo "$pid $(started_at "$pid")" >"$folder/$name.process"
}

stop() { # NAME: TERM, ten seconds, KILL
  local name=$1 pid rest
  if alive "$name"; then
    read -r pid rest <"$folder/$name.process"
    kill "$pid"
    for _ in $(seq 100); do alive "$name" || break; sleep 0.1; done
    ! alive "$name" || kill -9 "$pid"
  fi
  rm -f "$folder/$name.process"
}

wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then
      say "$what did not come up"
      tail -n 15 "$folder"/*.log "$folder"/*.out >&2 || true
      exit 1
    fi
    sleep 0.1
  done
}
