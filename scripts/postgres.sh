#!/usr/bin/env bash
# The tests run a PostgreSQL server of their own: this sees to it that its programs are on the machine.
set -euo pipefail

found() {
    local bindir
    bindir=$(pg_config --bindir 2>/dev/null) && [ -x "$bindir/initdb" ] && return
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

found && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo 'installing PostgreSQL, which the tests run a server of' >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends postgresql >&2
    found && exit
fi
cat >&2 <<'END'
The tests run a PostgreSQL server of their own, and its programs (initdb, postgres) are not on this machine.
  Debian, Ubuntu:  sudo apt-get install postgresql
  Fedora:          sudo dnf install postgresql-server
  macOS:           brew install postgresql
END
exit 1
