#!/bin/sh
# Boots a Linux whose init is systemd in a virtual machine, and sees there that packaging/midspan-relay.service
# does what it says: the relay as packaged, beneath the unit's hardening, with a client and a server.
#
# tests/unit.sh [VERSION [CARGO-OPTION...]], as tests/kernel.sh.
set -eu
cd "$(dirname "$0")/.."
version=${1-6.1}
[ $# -eq 0 ] || shift
. tests/guest.sh

main() {
    skip_without systemctl
    [ -x /lib/systemd/systemd ] || skip "no systemd"
    prepare
    for tool in nft ip curl systemctl; do
        add_program "$(command -v "$tool")" "$root/bin/$tool"
    done
    add_program /lib/systemd/systemd "$root/lib/systemd/systemd"
    ln -s /lib/systemd/systemd "$root/init"
    units=$root/etc/systemd/system
    mkdir -p "$units" "$root/var" "$root/run" "$root/etc/midspan"
    cp /lib/systemd/system/*.target "$units"
    rm -f "$units/default.target"
    build_program "$@"
    program=$(executable midspan bin midspan)
    add_program "$program" "$root/usr/bin/midspan"
    cp packaging/midspan-relay.service "$units"
    cp packaging/relay.toml "$root/etc/midspan"
    echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo 'ID=guest' >"$root/etc/os-release"
    : >"$root/etc/machine-id"
    manager_settings >"$root/etc/systemd/system.conf"
    default_target >"$units/default.target"
    check_service >"$units/check.service"
    check >"$root/check"
    boot
    grep -q '^unit: all passed' "$build/console"
}

manager_settings() {
    cat <<'TEXT'
[Manager]
LogTarget=console
LogLevel=warning
ShowStatus=no
DefaultStandardOutput=kmsg+console
TEXT
}

default_target() {
    cat <<'TEXT'
[Unit]
Requires=basic.target check.service
TEXT
}

check_service() {
    cat <<'TEXT'
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/busybox sh /check
StandardOutput=file:/dev/console
StandardError=file:/dev/console
TEXT
}

check() {
    cat <<'TEXT'
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
ln -s /bin/busybox /sbin/modprobe
failed=0
# Not busybox's own, which its shell prefers.
ip() { /bin/ip "$@"; }

# expect WHAT COMMAND...: the command succeeds.
expect() {
    what=$1
    shift
    if "$@"; then
        echo "unit: ok: $what"
    else
        echo "unit: FAILED: $what"
        failed=1
    fi
}

# within SECONDS COMMAND...: it does in time.
within() {
    left=$1
    shift
    until "$@"; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        sleep 1
    done
}

property() { systemctl show midspan-relay --value --property "$1"; }
is_active() { [ "$(property ActiveState)" = active ]; }
is_another() { is_active && [ "$(property MainPID)" != "$pid" ]; }
in_process() { grep -q "$1" "/proc/$(property MainPID)/status"; }
fetches() { [ "$(ip netns exec client curl -s -m 20 http://192.0.2.2:8000/file)" = whole ]; }
flows() { cat /var/log/midspan/flows.jsonl 2>/dev/null | grep -c '"kind":"split"'; }
is_split() { before=$(flows); fetches && within 20 has_more_flows; }
has_more_flows() { [ "$(flows)" -gt "$before" ]; }
# In the service's own view of the file system. Opening tells; busybox's `test -w` believes that root may anything.
can_write() { nsenter -t "$(property MainPID)" -m sh -c ": >>$1" 2>/dev/null; }
not() { ! "$@"; }

# Elsewhere its node is there before its module.
modprobe tun
mkdir -p /var/run /run/netns /srv
ln -s /run/netns /var/run/netns 2>/dev/null
ip netns add client
ip netns add server
ip link add access type veth peer name uplink netns client
ip link add wide type veth peer name downlink netns server
ip address add 10.0.0.1/24 dev access
ip address add 192.0.2.1/24 dev wide
ip link set access up
ip link set wide up
ip link set lo up
ip -n client address add 10.0.0.2/24 dev uplink
ip -n server address add 192.0.2.2/24 dev downlink
ip -n client link set uplink up
ip -n server link set downlink up
ip -n client route add default via 10.0.0.1
ip -n server route add default via 192.0.2.1
echo 1 >/proc/sys/net/ipv4/ip_forward
echo whole >/srv/file
ip netns exec server httpd -p 8000 -h /srv

echo "unit: $(uname -r), $(systemctl --version | head -n 1)"
expect "a client reaches its server before there is a relay" fetches
expect "it starts, and says that it is ready" systemctl start midspan-relay
expect "a connection is split" is_split
expect "it keeps CAP_NET_ADMIN, CAP_NET_BIND_SERVICE and CAP_BPF alone" in_process '^CapEff:.*0000008000001400$'
expect "it cannot gain privileges" in_process '^NoNewPrivs:.*1$'
expect "its system calls are filtered" in_process '^Seccomp:.*2$'
expect "it is pinned, so that another can take over" ls /sys/fs/bpf/midspan/net-*
expect "it can write to the settings of the kernel that it has to" can_write /proc/sys/net/ipv4/conf/all/rp_filter
expect "and to no others" not can_write /proc/sys/kernel/hostname
expect "its socket is root's alone" [ "$(stat -c %a /run/midspan/relay.sock)" = 600 ]
expect "the key of its pseudonyms is there" [ -s /var/lib/midspan/pseudonyms.key ]

pid=$(property MainPID)
echo 'connect_timeout = "20 s"' | cat - /etc/midspan/relay.toml >/etc/midspan/new
mv /etc/midspan/new /etc/midspan/relay.toml
expect "another configuration is taken" systemctl reload midspan-relay
echo 'nonsense = 1' | cat - /etc/midspan/relay.toml >/etc/midspan/new
mv /etc/midspan/new /etc/midspan/relay.toml
expect "a wrong one is refused" not systemctl reload midspan-relay
expect "it goes on as it was" [ "$(property MainPID)" = "$pid" ]
sed -i -e /nonsense/d -e /connect_timeout/d /etc/midspan/relay.toml

kill -9 "$pid"
expect "killed, it is there again" within 60 is_another
expect "and splits" is_split
pid=$(property MainPID)
kill -STOP "$pid"
expect "while it hangs, new connections pass" within 20 fetches
expect "its watchdog starts another" within 120 is_another
expect "which splits" is_split
nft add table inet firewall
nft add chain inet firewall through '{ type filter hook forward priority 0; policy drop; }'
nft add rule inet firewall through ct state established accept
nft add rule inet firewall through tcp dport 8000 accept
nft add chain inet firewall in '{ type filter hook input priority 0; policy drop; }'
nft add rule inet firewall in ct state established accept
nft add rule inet firewall in iifname lo accept
echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter
expect "beside a firewall that comes while it runs it splits" is_split
expect "it starts beside one" systemctl restart midspan-relay
expect "and splits" is_split
nft delete table inet firewall
expect "it stops in order" systemctl stop midspan-relay
expect "with success" [ "$(property Result)" = success ]
expect "and connections pass" fetches
[ $failed -eq 0 ] && echo "unit: all passed on Linux $(uname -r)"
reboot -f
TEXT
}

main "$@"
