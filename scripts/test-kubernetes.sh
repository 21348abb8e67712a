#!/bin/sh
# Tests lanes as a resource of Kubernetes (tests/kubernetes/run.py) on a control plane and a node that run here, on
# loopback. Usage: test-kubernetes.sh [TEST...]
#
# The first run builds Kubernetes from the Go module proxy, which takes 20 minutes of CPU time. It fetches etcd, containerd
# and busybox with apt, Spark and Ray with pip, without installing anything. Exit code: 0 if no test failed, 1 if one did,
# 77 skipped: something that is needed is not available here.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/tests/kubernetes
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/kubernetes
# shellcheck source=scripts/smt-packages.sh
. "$root/scripts/smt-packages.sh"

BATCH_ENGINES="pyspark==3.5.9 ray==2.60.0"
ENGINES="kubelet kube-apiserver kube-scheduler kube-controller-manager kubectl"

# Builds Kubernetes, unless this version has been built.
need_kubernetes() {
	version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$source/go.mod")
	[ "$(cat "$cache/version" 2>/dev/null)" != "$version" ] || return 0
	command -v go >/dev/null || skip "Go is missing, and Kubernetes $version cannot be built without it"
	say "building Kubernetes $version"
	flags="-s -w"
	minor=${version#v1.}
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
	done
	(cd "$source" && go mod download) || skip "the sources of Kubernetes $version cannot be downloaded"
	for engine in $ENGINES; do
		(cd "$source" && CGO_ENABLED=0 nice -n 10 go build -ldflags "$flags" -o "$cache/bin/" "k8s.io/kubernetes/cmd/$engine") ||
			fail "$engine $version cannot be built"
	done
	echo "$version" >"$cache/version"
}

# Builds Helm, unless this version has been built.
need_helm() {
	version=$(awk '$1 == "helm.sh/helm/v3" { print $2 }' "$source/helm/go.mod")
	[ "$(cat "$cache/helm-version" 2>/dev/null)" != "$version" ] || return 0
	say "building Helm $version"
	(cd "$source/helm" && go mod download) || skip "the sources of Helm $version cannot be downloaded"
	(cd "$source/helm" && CGO_ENABLED=0 nice -n 10 go build -ldflags "-s -w" -o "$cache/bin/" helm.sh/helm/v3/cmd/helm) ||
		fail "Helm $version cannot be built"
	echo "$version" >"$cache/helm-version"
}

# Programs of Debian. Those that are installed here are used too.
need_packages() {
	[ ! -x "$cache/debian/usr/bin/etcd" ] || return 0
	open_packages
	packages="etcd-server containerd runc busybox-static containernetworking-plugins"
	# shellcheck disable=SC2046,SC2086 # lists of packages
	unpack debian $(with_dependencies $packages) $packages
	keep debian
}

# Python packages of Spark and Ray. Without them their tests are skipped.
need_engines() {
	[ ! -d "$cache/engines/ray" ] || return 0
	# shellcheck disable=SC2086 # a list of packages
	python3 -m venv "$scratch/venv" && "$scratch/venv/bin/pip" install -q --target "$scratch/engines" $BATCH_ENGINES ||
		return 0
	mv "$scratch/engines" "$cache/engines"
}

clean_up() {
	rm -rf "$scratch"
}

[ "$(id -u)" -eq 0 ] || skip "needs root: a node has cgroups and mounts"
for command in python3 gcc openssl ip redis-server redis-cli; do
	command -v $command >/dev/null || skip "needs $command"
done
mkdir -p "$cache/bin"
scratch=$(mktemp -d "$cache/run.XXXXXX")
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
need_packages
need_kubernetes
need_helm
need_engines
# Mounts and network devices of the node end with these namespaces.
unshare --mount --net python3 "$source/run.py" "$root/target/debug" "$cache" "$@"
