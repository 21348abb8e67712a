# What a session's shell does before the first command of its page.
unset BASH_ENV
set -e
trap 'failed="line $LINENO: $BASH_COMMAND"' ERR
trap 'status=$?; [ "$status" -eq 0 ] || echo "exit status $status, $failed"' EXIT

begins() {
	echo "--- line $1, after $SECONDS s"
}

# Lines with \036 are for the test.
interrupt_after() {
	printf '\036interrupt after %s\n' "$1"
}

is_interrupted() {
	printf '\036interrupted\n'
}

# Fails unless the command before has exited with one of these codes.
exits_with() {
	local status=$? code
	set -e
	for code; do
		[ "$status" -ne "$code" ] || return 0
	done
	echo "exit status $status, where the page has $*"
	return 1
}

# The session is root's.
sudo() {
	[ "$1" = -s ] || "$@"
}

# A test installs nothing: without these packages it does not run.
apt-get() {
	[ "$1 $2" = "install -y" ] && dpkg-query -W "${@:3}" >/dev/null
}
