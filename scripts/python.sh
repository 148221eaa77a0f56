#!/usr/bin/env bash
# Prints the Python to build .venv with: 3.11 where there is one, else any newer.
# Asking is the only sure way: a name on PATH may be a shim with nothing behind it, or lack the venv module.
set -euo pipefail

for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$candidate"
        exit
    fi
done
echo "esker needs Python 3.11 or newer, with its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2
exit 1
