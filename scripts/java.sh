#!/usr/bin/env bash
# Compiles java/ against the jars inside the installed pyspark, into the jar that esker.spark gives to Spark.
# The same sources make the same jar, byte by byte; it is put in its place whole.
set -euo pipefail
cd "$(dirname "$0")/.."

jar=src/esker/spark/esker-hadoop.jar
release=17 # the oldest that Spark 4 runs on

has_jdk() {
    command -v "$1/javac" >/dev/null && "$1/javac" -version 2>&1 | awk -F '[ .]' -v least=$release '{ exit $2 < least }'
}

find_jdk() {
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin}" "$(dirname "$(command -v javac || echo -)")" /usr/lib/jvm/*/bin; do
        if [ -n "$candidate" ] && has_jdk "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if ! jdk=$(find_jdk); then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get install --yes --quiet --no-install-recommends "openjdk-$release-jdk-headless" >&2
    fi
    if ! jdk=$(find_jdk); then
        echo "esker's Spark support is compiled with a JDK, $release or newer, and there is none:" \
            "apt-get install openjdk-$release-jdk-headless, or set JAVA_HOME" >&2
        exit 1
    fi
fi

spark=$(.venv/bin/python -c 'from importlib.util import find_spec; print(find_spec("pyspark").submodule_search_locations[0])')
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

find java/src/main/java -name '*.java' -print0 | sort -z |
    xargs -0 "$jdk/javac" --release $release -Werror -Xlint:all,-classfile,-path,-processing,-serial -encoding UTF-8 \
        -classpath "$spark/jars/*" -d "$build/classes"
"$jdk/jar" --create --date 2020-01-01T00:00:00Z --file "$build/esker-hadoop.jar" \
    -C "$build/classes" . -C java/src/main/resources .
mv "$build/esker-hadoop.jar" "$jar"
