#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The common part of run.sh and observe.sh: their options, and programs that are downloaded and
# built. To be sourced: . programs.sh "$@"

here=$(cd "$(dirname "$0")" && pwd)
target=${SIDELANE_AGENT:-$(cd "$here/.." && pwd)/target}
cache=${SIDELANE_CACHE:-$HOME/.cache/sidelane}/java-bench
text=${SIDELANE_BENCH_TEXT:-/usr/share/doc/linux-doc-6.1}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
pairs=10 rounds=20 warm_up=60 options='' cpu='' observer_cpu='' programs=()
jars="com.h2database:h2:2.2.224 org.apache.lucene:lucene-core:9.12.3 org.apache.lucene:lucene-analysis-common:9.12.3
	org.python:jython-standalone:2.7.4"

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
	case $1 in
	--pairs | --rounds | --warm-up | --options | --cpu | --observer-cpu)
		[ $# -gt 1 ] || fail "$1 wants a value"
		name=${1#--}
		printf -v "${name//-/_}" %s "$2"
		shift 2 ;;
	lucene | h2 | jython) programs+=("$1"); shift ;;
	*) fail "'$1' is not one of --pairs, --rounds, --warm-up, --options, --cpu, --observer-cpu, lucene, h2, jython" ;;
	esac
done
[ ${#programs[@]} -gt 0 ] || programs=(lucene h2 jython)
[ -f "$target/sidelane-agent.jar" ] || fail "there is no agent in $target: run make in runtime/java first"

prepare() {
	mkdir -p "$cache/classes"
	for artifact in $jars; do
		IFS=: read -r _ name version <<<"$artifact"
		[ -f "$cache/$name-$version.jar" ] && continue
		mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$cache" >&2 ||
			fail "Maven could not fetch $artifact"
	done
	javac -d "$cache/classes" -cp "$cache/*" "$here"/*.java
	cc -O2 -Wall -fPIC -shared -o "$cache/libgate_stub.so" "$here/native/gate_stub.c"
}

# The program and its arguments, after "java -cp ...".
command_of() {
	case $1 in
	lucene)
		[ -d "$text" ] || fail "no text in $text: install linux-doc-6.1 or set SIDELANE_BENCH_TEXT"
		echo "LuceneIndex $text 1 $warm_up" ;;
	h2) echo "H2Orders $warm_up" ;;
	jython) echo "JythonWork $warm_up" ;;
	esac
}
