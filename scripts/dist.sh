#!/usr/bin/env bash
# Builds wheel and sdist into dist/, or the directory that is named; both have the jar, and the sdist what it is made
# from. The same sources make the same files, byte by byte: what is built is a copy of what git knows, and times, modes
# and owners are the same for all.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-dist}
export SOURCE_DATE_EPOCH=1577836800 # 2020-01-01, as in the jar
python=$PWD/.venv/bin/python
umask 022
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

mkdir "$build/source" "$build/sdist"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi # one that was deleted is still listed
done | tar --create --null --files-from=- src/esker/spark/esker-hadoop.jar | tar --extract --directory "$build/source"
chmod -R u=rwX,go=rX "$build/source"

"$python" -m build --no-isolation --sdist --outdir "$build" "$build/source" >/dev/null
sdist=$(cd "$build" && echo *.tar.gz)
tar --extract --gzip --file "$build/$sdist" --directory "$build/sdist" --strip-components=1 --no-same-owner
tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --transform="s,^\.,${sdist%.tar.gz}," --directory "$build/sdist" . | gzip --no-name --best >"$build/new.tar.gz"
"$python" -m build --no-isolation --wheel --outdir "$build" "$build/sdist" >/dev/null # from the sdist: so it has it all

rm -f "$out"/esker-*.whl "$out"/esker-*.tar.gz
mv "$build/new.tar.gz" "$out/$sdist"
mv "$build"/*.whl "$out"
ls -l "$out"
