#!/bin/sh
# The relay under valgrind's memcheck, with connections through it: no invalid access, nothing lost. As root or where
# user namespaces are allowed; without valgrind, curl or python3 it says that it was skipped.
#
# valgrind knows neither system calls made past libc nor the vDSO, so this build makes them through libc
# (`rustix_use_libc`) and is the release build otherwise; nor epoll_pwait2, for which a function steps in.
set -eu
cd "$(dirname "$0")/.."
for program in valgrind cc curl python3 unshare; do
    command -v "$program" >/dev/null || { echo "valgrind: skipped: no $program"; exit 0; }
done
unshare --user --map-root-user --net true 2>/dev/null || unshare --net true 2>/dev/null ||
    { echo "valgrind: skipped: network namespaces may not be created here"; exit 0; }

if [ "${1-}" != inside ]; then
    RUSTFLAGS="--cfg rustix_use_libc" cargo build --release --locked --quiet -p midspan --no-default-features --features relay \
        --target-dir target/valgrind
    cc -shared -fPIC -o target/valgrind/epoll.so -x c - <<'C'
#include <sys/epoll.h>
#include <time.h>

int epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *mask)
{
	int wait = timeout ? timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000 : -1;

	return epoll_pwait(epoll, events, most, wait, mask);
}
C
    user=
    [ "$(id -u)" -eq 0 ] || user="--user --map-root-user"
    # shellcheck disable=SC2086
    exec unshare $user --net --pid --fork --kill-child "$0" inside
fi

# A namespace with nothing but its loopback: a server, the relay in front of it, and who asks.
ip link set lo up
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 3000000 /dev/urandom >"$work/page"
cat >"$work/relay.toml" <<TOML
interception = "none"
workers = 2
[[forward]]
listen = "127.0.0.1:8080"
to = "127.0.0.1:8000"
[metrics]
listen = "127.0.0.1:9743"
TOML
python3 -m http.server --bind 127.0.0.1 --directory "$work" 8000 >/dev/null 2>&1 &
LD_PRELOAD=$PWD/target/valgrind/epoll.so valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    target/valgrind/release/midspan relay --config "$work/relay.toml" >"$work/log" 2>&1 &
relay=$!

failed() {
    echo "valgrind: $1" >&2
    cat "$work/log" >&2
    exit 1
}

curl --silent --retry 60 --retry-delay 1 --retry-connrefused --output /dev/null http://127.0.0.1:9743/metrics ||
    failed "the relay does not start"
for round in 1 2 3 4 5 6 7 8; do
    curl --silent --show-error --max-time 60 --output "$work/got" http://127.0.0.1:8080/page || failed "round $round"
    cmp --silent "$work/page" "$work/got" || failed "round $round: other bytes"
done
# Clients that do not wait for the end.
for round in 1 2 3; do
    curl --silent --max-time 1 --limit-rate 100k --output /dev/null http://127.0.0.1:8080/page || true
done
curl --silent --output "$work/got" http://127.0.0.1:9743/metrics
kill "$relay"
wait "$relay" || failed "memcheck found errors (status $?)"
echo "valgrind: no errors in $(sed -n 's/^midspan_relay_\(flows_\)*accepted[a-z_]* \([0-9]*\)$/\2/p' "$work/got" | head -1) connections"
