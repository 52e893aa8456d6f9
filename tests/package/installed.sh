# In a clean root without a network: both packages installed by apt, one after the other. /all.deb, /newer.deb and
# /relay.deb are there.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
mount -t proc proc /proc

# fail WHAT
fail() {
    echo "package: deb: FAILED: $1" >&2
    exit 1
}

# installs DEB: by apt, and as little as an operator may have said.
installs() {
    apt-get install -y -q -o Dpkg::Options::=--force-confold "$1" >/log 2>&1 || { cat /log >&2; fail "apt $1"; }
}

# is_well PACKAGE
is_well() {
    [ -z "$(dpkg --verify "$1")" ] || fail "$1 differs from what was packed"
    midspan --version || fail "it does not run"
    midspan relay --check --config /etc/midspan/relay.toml >/dev/null || fail "the example is not taken"
    for file in /usr/share/man/man1/midspan-relay-upgrade.1.gz /usr/share/bash-completion/completions/midspan \
        /usr/share/doc/midspan/explanation/relay.md /usr/share/doc/midspan/howto/operate.md "/usr/share/doc/$1/copyright" \
        /usr/share/midspan/grafana/midspan.json /usr/share/midspan/prometheus/midspan.rules.yml; do
        [ -s "$file" ] || fail "$1 has no $file"
    done
    [ "$(systemctl is-enabled midspan-relay.service)" = disabled ] || fail "it would start with the machine"
    systemd-analyze verify midspan-relay.service 2>&1 | grep midspan && fail "systemd does not like the unit"
    echo "package: deb: $1 $(dpkg-query -W -f '${Version}, ${Installed-Size} KiB' "$1"), program $(stat -c %s /usr/bin/midspan) bytes"
}

installs /relay.deb
is_well midspan-relay
midspan lab --help >/dev/null 2>&1 && fail "the relay alone has a lab"
echo '# mine' >>/etc/midspan/relay.toml

# In the place of the other, with the configuration as it is.
installs /all.deb
dpkg-query -W -f '${Status}' midspan-relay 2>/dev/null | grep -q ' installed' && fail "both are there"
grep -q '# mine' /etc/midspan/relay.toml || fail "the configuration was written over"
sed -i '/^# mine$/d' /etc/midspan/relay.toml
is_well midspan
midspan lab check /usr/share/midspan/scenarios/mec/3a.toml >/dev/null || fail "the scenarios are not where they were"
for unit in assist agent; do
    [ "$(systemctl is-enabled midspan-$unit.service)" = disabled ] || fail "$unit would start with the machine"
    systemd-analyze verify midspan-$unit.service 2>&1 | grep midspan && fail "systemd does not like $unit's unit"
done
[ -s "/usr/lib/systemd/system/midspan-metrics@.timer" ] || fail "no timer"

echo '# mine' >>/etc/midspan/relay.toml
installs /newer.deb
grep -q '# mine' /etc/midspan/relay.toml || fail "an upgrade wrote over the configuration"
sed -i '/^# mine$/d' /etc/midspan/relay.toml
is_well midspan
apt-get purge -y -q midspan midspan-relay >/log 2>&1 || { cat /log >&2; fail "purge"; }
[ ! -e /usr/bin/midspan ] && [ ! -e /etc/midspan/relay.toml ] || fail "something is left"
