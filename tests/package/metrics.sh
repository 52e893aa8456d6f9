#!/bin/sh
# In a network namespace of its own: a relay between a client and a server, one connection through it, and what its
# metrics are then, in SCRATCH/metrics.txt.
#
# tests/package/metrics.sh PROGRAM SCRATCH
set -eu
program=$1
scratch=$2

# Without a name that is seen elsewhere.
mount -t tmpfs none /run
mkdir -p /run/netns /run/midspan
for host in client server; do
    ip netns add $host
done
ip link add access type veth peer name uplink netns client
ip link add wide type veth peer name downlink netns server
ip address add 10.0.0.1/24 dev access
ip address add 192.0.2.1/24 dev wide
for link in lo access wide; do
    ip link set $link up
done
ip -n client address add 10.0.0.2/24 dev uplink
ip -n server address add 192.0.2.2/24 dev downlink
ip -n client link set uplink up
ip -n server link set downlink up
ip -n client route add default via 10.0.0.1
ip -n server route add default via 192.0.2.1
echo 1 >/proc/sys/net/ipv4/ip_forward

mkdir "$scratch/srv"
head -c 3000000 /dev/urandom >"$scratch/srv/file"
ip netns exec server python3 -m http.server --directory "$scratch/srv" 8000 >/dev/null 2>&1 &
server=$!
cat >"$scratch/relay.toml" <<TOML
clients = ["10.0.0.0/8"]
[metrics]
[admin]
[decide]
[flow_log]
path = "$scratch/flows.jsonl"
TOML
"$program" relay --config "$scratch/relay.toml" 2>"$scratch/log" &
relay=$!
trap 'kill $relay $server 2>/dev/null || true; wait' EXIT

# within COMMAND...: it succeeds in half a minute.
within() {
    left=150
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        if [ $left -eq 0 ]; then
            echo "package: metrics: in vain: $*" >&2
            cat "$scratch/log" >&2
            exit 1
        fi
        sleep 0.2
    done
}

ended() { curl -s http://127.0.0.1:9742/metrics | grep -q '^midspan_steer_ended_connections_total{treatment="[sh].*} [1-9]'; }
within curl -sf http://127.0.0.1:9742/metrics
within ip netns exec client curl -sf -o /dev/null http://192.0.2.2:8000/file
within ended
curl -sf -H 'Accept: text/plain' http://127.0.0.1:9742/metrics >"$scratch/metrics.txt"
