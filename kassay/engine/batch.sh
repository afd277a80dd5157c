#!/bin/sh
# The whole batch script: what runs, and with what, comes as arguments that no shell reads again.
exec "$@"
