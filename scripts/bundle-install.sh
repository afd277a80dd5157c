#!/bin/sh
# install [--check] [STACK_PYTHON=<python>] [TO=<folder>]: kassay on this host from what lies beside this file, no network.
#   STACK_PYTHON  interpreter of the environment with torch and triton (python3); .venv is made with it, it is left untouched
#   TO            where the clone is put (./kassay)
#   --check       only tell what this host has and lacks
# Needs git, make, Python 3.11 or newer. Called again, it ends what was begun and leaves alone what is done.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
python=${STACK_PYTHON:-python3}
for word; do
  case $word in STACK_PYTHON=*) python=${word#*=} ;; esac
done
refuse() {
  printf 'error: %s\nhint: %s STACK_PYTHON=/path/to/python3\n' "$1" "$0" >&2
  exit 2
}
found=$(command -v "$python") || refuse "\`$python\` is no program of this host, and kassay is Python"
"$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  refuse "$found is $("$found" -V 2>&1), kassay needs Python 3.11 or newer"
exec "$found" -I -B "$here/install.py" "$@"
