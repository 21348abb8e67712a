#!/bin/sh
# Runs real client libraries through `sidelane proxy` (tests/clients/run.py). Usage: test-clients.sh [CLIENT...]
#
# The libraries are installed into a folder of the cache, once. A language or package that cannot be had is skipped with
# the reason. Exit code: 0 if no client failed, 1 if one did.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/tests/clients
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/clients
mkdir -p "$cache"

# install LANGUAGE COMMANDS...: runs install_LANGUAGE if its files have changed since it succeeded; needs these commands.
install() {
	language=$1
	shift
	rm -f "$cache/$language.missing"
	for command in "$@"; do
		command -v "$command" >/dev/null || echo "needs $command" >"$cache/$language.missing"
	done
	[ ! -e "$cache/$language.missing" ] || return 0
	version=$(cd "$source" && cat $(files_of "$language") | sha256sum)
	[ "$(cat "$cache/$language.done" 2>/dev/null)" != "$version" ] || return 0
	echo "test-clients: installing the clients of $language" >&2
	rm -rf "${cache:?}/$language" "$cache/$language.done"
	mkdir -p "$cache/$language"
	if "install_$language" >"$cache/$language.log" 2>&1; then
		echo "$version" >"$cache/$language.done"
	else
		echo "cannot be installed: see $cache/$language.log" >"$cache/$language.missing"
	fi
}

files_of() {
	case $1 in
	python) echo requirements.txt ;;
	node) echo package.json ;;
	go) echo go.mod go.sum client.go ;;
	java) echo pom.xml Client.java ;;
	esac
}

install_python() {
	python3 -m venv "$cache/python" && "$cache/python/bin/pip" install -q -r "$source/requirements.txt"
}

install_node() {
	cp "$source/package.json" "$cache/node" && (cd "$cache/node" && npm install --no-audit --no-fund)
}

install_go() {
	(cd "$source" && go build -o "$cache/go/client" .)
}

install_java() {
	mvn -q -B -f "$source/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/java/lib" &&
		javac -cp "$cache/java/lib/*" -d "$cache/java/classes" "$source/Client.java"
}

command -v python3 >/dev/null || { echo "0 passed, 0 failed, 11 skipped (needs python3)"; exit 0; }
install python python3
install node node npm
install go go
install java java javac mvn
exec python3 "$source/run.py" "$root/target/debug/sidelane" "$cache" "$@"
