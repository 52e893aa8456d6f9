# In a virtual machine whose init is systemd, with the package installed: the relay is started by its unit, and the
# package upgraded while connections go through it. tests/package.sh puts it there, with /newer.deb.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
failed=0

# expect WHAT COMMAND...: the command succeeds.
expect() {
    what=$1
    shift
    if "$@"; then
        echo "upgrade: ok: $what"
    else
        echo "upgrade: FAILED: $what"
        journalctl -b -u midspan-relay -u midspan-agent -u midspan-assist --no-pager -o cat | tail -n 12
        systemctl show midspan-relay | grep -E 'Result=|ExecMain(Status|Code)='
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

not() { ! "$@"; }
property() { systemctl show midspan-relay --value --property "$1"; }
is_active() { [ "$(property ActiveState)" = active ]; }
in_client() { ip netns exec client "$@"; }
fetches() { [ "$(in_client curl -s -m 60 http://192.0.2.2:8000/small)" = whole ]; }
logged() { grep -c "\"kind\":\"$1\"" /var/log/midspan/flows.jsonl 2>/dev/null || true; }
has_more_flows() { [ "$(logged split)" -gt "$before" ]; }
is_split() { before=$(logged split); fetches && within 60 has_more_flows; }
has_ended() { [ ! -e "/proc/$1" ]; }

modprobe tun
mkdir -p /run/netns /srv
ip netns add client
ip netns add server
ip link add access type veth peer name uplink netns client
ip link add wide type veth peer name downlink netns server
ip address add 10.0.0.1/24 dev access
ip address add 192.0.2.1/24 dev wide
for link in lo access wide; do ip link set $link up; done
ip -n client address add 10.0.0.2/24 dev uplink
ip -n server address add 192.0.2.2/24 dev downlink
ip -n client link set uplink up
ip -n server link set downlink up
ip -n client route add default via 10.0.0.1
ip -n server route add default via 192.0.2.1
echo 1 >/proc/sys/net/ipv4/ip_forward
echo whole >/srv/small
mkdir /srv/cgi-bin
cat >/srv/cgi-bin/stream <<'STREAM'
#!/bin/sh
# For as long as there is not enough, and what is sent is kept.
printf 'Content-Type: application/octet-stream\r\n\r\n'
while [ ! -e /tmp/enough ]; do
    head -c 30000 /dev/urandom | tee -a /tmp/sent
    sleep 0.2
done
STREAM
chmod +x /srv/cgi-bin/stream
ip netns exec server busybox httpd -p 8000 -h /srv
ip netns exec server iperf3 --server --daemon

echo "upgrade: $(uname -r), $(systemctl --version | head -n 1), midspan $(dpkg-query -W -f '${Version}' midspan)"
expect "installed, it is not enabled" [ "$(systemctl is-enabled midspan-relay)" = disabled ]
expect "and not started" not is_active
expect "its unit starts it" systemctl start midspan-relay
expect "a connection is split" is_split

# What goes on while the package is upgraded: a download, iperf3, and new connections all the time.
pid=$(property MainPID)
in_client curl -s -o /tmp/received http://192.0.2.2:8000/cgi-bin/stream &
download=$!
in_client iperf3 --client 192.0.2.2 --bitrate 2M --time 200 --json >/tmp/iperf3 &
iperf3=$!
cat >/tmp/load <<'LOAD'
while [ ! -e /tmp/enough ]; do
    if [ "$(curl -s -m 60 http://192.0.2.2:8000/small)" = whole ]; then echo ok; else echo refused; fi
    sleep 0.2
done >/tmp/fetched
LOAD
in_client sh /tmp/load &
load=$!
sleep 10
split=$(logged split)
before=$(wc -l </tmp/fetched)
expect "apt installs the newer package" apt-get install -y -q /newer.deb
echo "upgrade: midspan $(dpkg-query -W -f '${Version}' midspan); $(($(wc -l </tmp/fetched) - before)) connections meanwhile"
new=$(property MainPID)
expect "the service has another main process" [ "$new" != "$pid" ]
expect "which runs what was installed" [ "/proc/$new/exe" -ef /usr/bin/midspan ]
expect "the former one goes on with its flows" [ -e "/proc/$pid" ]
expect "the service is active" is_active
expect "and systemd has restarted nothing" [ "$(property NRestarts)" = 0 ]
# Longer than WatchdogSec.
sleep 15
expect "the watchdog is fed by the new one" [ "$(property MainPID)" = "$new" ]
: >/tmp/enough
wait $load
expect "no connection was refused, of $(wc -l </tmp/fetched)" not grep -q refused /tmp/fetched
expect "the download ends" wait $download
expect "and of $(wc -c </tmp/sent) bytes none is lost" cmp -s /tmp/received /tmp/sent
expect "iperf3 ends in order" wait $iperf3
sent=$(sed -n '/"sum_sent"/,/}/s/.*"bytes":[^0-9]*\([0-9]*\).*/\1/p' /tmp/iperf3)
received=$(sed -n '/"sum_received"/,/}/s/.*"bytes":[^0-9]*\([0-9]*\).*/\1/p' /tmp/iperf3)
echo "upgrade: iperf3 sent $sent and received $received bytes"
expect "the former one ends with its last flow" within 60 has_ended "$pid"
expect "and the service does not" [ "$(property MainPID)" = "$new" ]
sleep 3
echo "upgrade: flows that ended otherwise than in order:"
grep '"kind":"split"' /var/log/midspan/flows.jsonl | grep -v '"ended":"closed"'
echo "upgrade: $(logged split) flows were split, $(($(logged split) - split)) of them since the upgrade began"
expect "connections are split by the new one" is_split
expect "the same program is not replaced by itself" systemctl reload midspan-relay
expect "but reloaded" [ "$(property MainPID)" = "$new" ]
expect "it stops in order" systemctl stop midspan-relay
expect "with success" [ "$(property Result)" = success ]
expect "and connections pass" fetches

midspan assist certs --folder /etc/midspan/certs --host daemon=netassist.example --host server=server.example >/dev/null
sed -i 's/192.0.2.1:49460/127.0.0.1:49460/' /etc/midspan/agent.toml
mkdir -p /var/lib/prometheus/node-exporter
is_connected() { midspan assist top /run/midspan-agent/control.sock --metrics | grep -q '^midspan_assist_connected.* 1$'; }
expect "NetAssist's daemon is started by its unit" systemctl start midspan-assist
expect "and the agent" systemctl start midspan-agent
expect "which reaches it" within 60 is_connected
for unit in assist agent; do
    expect "metrics of $unit are written" systemctl start midspan-metrics@$unit.service
    expect "for node_exporter" grep -q '^midspan_assist_' /var/lib/prometheus/node-exporter/midspan-$unit.prom
    in_process="/proc/$(systemctl show midspan-$unit --value --property MainPID)/status"
    echo "upgrade: midspan-$unit.service: $(grep -E 'CapEff|NoNewPrivs|Seccomp:' "$in_process" | tr '\t\n' '  ')"
done
expect "both stop in order" systemctl stop midspan-assist midspan-agent
expect "removed, it leaves its configuration" apt-get remove -y -q midspan
expect "which is there" [ -s /etc/midspan/relay.toml ]
expect "purged, nothing" apt-get purge -y -q midspan
expect "not even that" not [ -e /etc/midspan/relay.toml ]
[ $failed -eq 0 ] && echo "upgrade: all passed on Linux $(uname -r)"
systemctl --force --force reboot
