#!/bin/sh
# Whether what operators are given works: dashboard and alert rules, metrics, and so on.
#
# tests/package.sh [PART...]      all parts, or those named: rules dashboard metrics helm deb upgrade
#
# What a part takes and this machine lacks is fetched into the build folder where that can be done without installing
# anything; else the part is skipped, and says so. Namespaces take root, or user namespaces.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR-target}
tools=$target/tools
parts="rules dashboard metrics helm deb upgrade"
failed=
skipped=

main() {
    mkdir -p "$tools"
    tools=$(cd "$tools" && pwd)
    scratch=$(mktemp -d)
    trap 'clean_up' EXIT
    trap 'exit 1' INT TERM
    for part in ${*:-$parts}; do
        begun=$(date +%s)
        status=0
        # A subshell, so that a part can end anywhere; `set -e` does not hold in one whose status is asked for.
        (set +e; "part_$part") || status=$?
        took=$(($(date +%s) - begun))
        case $status in
        0) echo "package: ok: $part ($took s)" ;;
        77) skipped="$skipped $part" ;;
        *)
            echo "package: FAILED: $part ($took s)"
            failed="$failed $part"
            ;;
        esac
    done
    [ -z "$skipped" ] || echo "package: skipped:$skipped"
    [ -z "$failed" ] || exit 1
}

clean_up() {
    rm -rf "$scratch"
}

# skip WHY: ends a part.
skip() {
    echo "package: skipped: $part: $1" >&2
    exit 77
}

# fail WHY
fail() {
    echo "package: $part: $1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# debian_program PACKAGE PATH: that program, of a Debian package that is unpacked and not installed; nothing is
# started so.
debian_program() {
    folder=$tools/$1
    if [ ! -x "$folder/$2" ]; then
        has apt-get && has dpkg-deb || return 1
        mkdir -p "$folder/fetched"
        # As root apt would want a user of its own to be able to write here.
        (cd "$folder/fetched" && apt-get -qq -o APT::Sandbox::User=root download "$1") >&2 || return 1
        dpkg-deb -x "$folder"/fetched/"$1"_*.deb "$folder" || return 1
    fi
    echo "$folder/$2"
}

need_promtool() {
    promtool=$(command -v promtool) || promtool=$(debian_program prometheus usr/bin/promtool) ||
        skip "no promtool (Debian package prometheus)"
}

part_rules() {
    need_promtool
    "$promtool" check rules packaging/prometheus/midspan.rules.yml || fail "the rules are wrong"
    "$promtool" test rules packaging/prometheus/midspan.test.yml || fail "alerts do not fire as they should"
}

# Each query is one that Prometheus can parse, once Grafana has put in what it puts in.
part_dashboard() {
    need_promtool
    has python3 || skip "no python3"
    python3 - packaging/grafana/midspan.json >"$scratch/dashboard.yml" <<'PYTHON' || exit 1
import json, re, sys

dashboard = json.load(open(sys.argv[1]))
queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
queries += [annotation["target"]["expr"] for annotation in dashboard["annotations"]["list"]]
variables = {variable["name"] for variable in dashboard["templating"]["list"]}
rules = []
for number, query in enumerate(queries):
    query = query.replace("$__rate_interval", "5m")
    for variable in re.findall(r"\$(\w+)", query):
        if variable not in variables:
            sys.exit(f"a query has ${variable}, which is no variable: {query}")
    rules.append({"record": f"query:{number}", "expr": re.sub(r"\$\w+", "any", query)})
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
PYTHON
    "$promtool" check rules "$scratch/dashboard.yml" || fail "a query of the dashboard is wrong"
    # And it is what Grafana takes for a dashboard.
    has npm || { echo "package: dashboard: no npm, so not held against Grafana's types" >&2; return; }
    (
        mkdir -p "$tools/grafana"
        cd "$tools/grafana"
        [ -d node_modules/@grafana/schema ] ||
            npm install --no-audit --no-fund --ignore-scripts --silent @grafana/schema@11.6.0 typescript@5.6.3
    ) || skip "Grafana's types are not to be had"
    python3 tests/package/dashboard.py packaging/grafana/midspan.json >"$tools/grafana/dashboard.ts"
    (cd "$tools/grafana" && node_modules/.bin/tsc --noEmit --strict --skipLibCheck --module esnext --target es2022 \
        --moduleResolution bundler dashboard.ts) || fail "Grafana would not take the dashboard"
}

# A relay in namespaces, with a connection split: what it tells is as Prometheus wants it.
part_metrics() {
    need_promtool
    for program in curl ip python3; do
        has $program || skip "no $program"
    done
    build_program
    in_namespaces 'sh tests/package/metrics.sh' "$program" "$scratch" || exit $?
    "$promtool" check metrics <"$scratch/metrics.txt" || fail "promtool complains of the relay's metrics"
    # All that dashboard and rules ask of the relay is there, under those very names.
    python3 tests/package/named.py "$scratch/metrics.txt" packaging/grafana/midspan.json \
        packaging/prometheus/midspan.rules.yml || fail "something that is asked for is not told"
}

# The program, built if need be.
build_program() {
    cargo build --release --locked --quiet -p midspan || fail "it does not build"
    program=$target/release/midspan
}

# in_namespaces COMMAND ARGUMENTS...: in mount and network namespaces of its own, as root there.
in_namespaces() {
    command=$1
    shift
    if [ "$(id -u)" -eq 0 ]; then
        unshare --mount --net -- sh -c "$command \"\$@\"" sh "$@"
    elif unshare --user true 2>/dev/null; then
        unshare --user --map-root-user --mount --net -- sh -c "$command \"\$@\"" sh "$@"
    else
        skip "neither root nor user namespaces"
    fi
}

# A root that has nothing but Debian 12 and systemd, unpacked into the folder.
clean_root() {
    kept=$tools/debian-root.tar
    if [ ! -f "$kept" ]; then
        mmdebstrap=$(command -v mmdebstrap) || mmdebstrap=$(debian_program mmdebstrap usr/bin/mmdebstrap) ||
            skip "no mmdebstrap"
        # libelf1 and zlib1g so that packages install without a network.
        perl "$mmdebstrap" --quiet --mode=root --variant=apt --format=tar \
            --include=systemd,systemd-sysv,dbus,nftables,iproute2,curl,iperf3,kmod,procps,libelf1,zlib1g \
            bookworm "$kept.new" http://deb.debian.org/debian >&2 || skip "no Debian is to be had"
        mv "$kept.new" "$kept"
    fi
    mkdir -p "$1"
    # Devices are the running system's.
    tar -xf "$kept" -C "$1" --exclude='./dev/*'
}

need_packages() {
    [ "$(id -u)" -eq 0 ] || skip "not root"
    for program in dpkg-deb apt-get perl; do
        has $program || skip "no $program"
    done
    ls "$target"/packages/midspan_*-1_*.deb >/dev/null 2>&1 || ./run package >&2 || fail "no packages"
    all=$(ls "$target"/packages/midspan_*-1_*.deb)
    relay=$(ls "$target"/packages/midspan-relay_*-1_*.deb)
    newer=$scratch/newer.deb
}

# The same of a later revision: what a newer build is to dpkg.
make_newer() {
    dpkg-deb -R "$1" "$scratch/unpacked"
    sed -i 's/^\(Version: .*\)-1$/\1-2/' "$scratch/unpacked/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -b "$scratch/unpacked" "$newer" >/dev/null
    rm -rf "$scratch/unpacked"
}

# Both packages in a clean root, one after the other.
part_deb() {
    need_packages
    root=$scratch/root
    clean_root "$root"
    make_newer "$all"
    cp "$all" "$root/all.deb"
    cp "$relay" "$root/relay.deb"
    cp "$newer" "$root/newer.deb"
    cp tests/package/installed.sh "$root/installed.sh"
    unshare --mount --pid --fork --net chroot "$root" sh /installed.sh || fail "packages do not install as they should"
}

# The package in a virtual machine: started by its unit, upgraded under load.
part_upgrade() {
    need_packages
    (
        set -eu
        version=6.1
        . tests/guest.sh
        skip() {
            echo "package: skipped: $part: $1" >&2
            exit 77
        }
        prepare
        modules_of=$root
        root=$build/debian
        clean_root "$root"
        make_newer "$all"
        cp "$newer" "$root/newer.deb"
        cp "$all" "$root/all.deb"
        chroot "$root" apt-get install -y -q /all.deb >&2
        rm -rf "$root/all.deb" "$root"/usr/share/locale "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
        cp -r "$modules_of/lib/modules" "$root/usr/lib/"
        chroot "$root" depmod "$release"
        cp "$(command -v busybox)" "$root/usr/bin/busybox"
        rm -rf "$modules_of"
        ln -s /lib/systemd/systemd "$root/init"
        # Without one systemd would take this for a first boot.
        echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
        cp tests/package/guest.sh "$root/check"
        cat >"$root/etc/systemd/system/check.service" <<'UNIT'
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh /check
StandardOutput=file:/dev/console
StandardError=file:/dev/console
UNIT
        cat >"$root/etc/systemd/system/default.target" <<'UNIT'
[Unit]
Requires=basic.target check.service
UNIT
        boot
        grep -q '^upgrade: all passed' "$build/console"
    )
}

# The chart, as Kubernetes would read it.
part_helm() {
    PATH=$PATH:/usr/local/go/bin
    has go || skip "no go"
    helm=$(command -v helm || echo "$tools/bin/helm")
    if [ ! -x "$helm" ]; then
        GOBIN=$tools/bin go install -p 2 helm.sh/helm/v3/cmd/helm@latest >&2 || skip "no helm"
    fi
    chart=packaging/helm/midspan
    "$helm" lint --strict --kube-version 1.30.0 "$chart" || fail "helm lint complains"
    "$helm" template edge "$chart" --kube-version 1.30.0 --set metrics.podMonitor=true >"$scratch/chart.yaml" ||
        fail "the chart cannot be rendered"
    mkdir "$scratch/manifests"
    cp tests/package/manifests.go "$scratch/manifests/main.go"
    (cd "$scratch/manifests" && go mod init manifests && go mod tidy &&
        go build -p 2 -o manifests .) >"$scratch/go" 2>&1 || { cat "$scratch/go" >&2; skip "no types of Kubernetes"; }
    "$scratch/manifests/manifests" "$scratch/chart.yaml" >"$scratch/relay.toml" || fail "Kubernetes would refuse it"
    # The configuration that the container would get is one that the relay takes, with the chart's options.
    build_program
    "$program" relay --check --config "$scratch/relay.toml" --set drain_timeout="300 s" \
        --set metrics.listen=127.0.0.1:9742 --set admin.socket="$scratch/relay.sock" >/dev/null ||
        fail "the relay refuses the chart's configuration"
}

main "$@"
