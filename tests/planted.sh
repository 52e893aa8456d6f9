#!/bin/sh
# Plants faults in the decisions about flows, one at a time, and sees that the models find each within a minute.
set -eu
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT INT TERM
tar c Cargo.toml Cargo.lock crates bench/Cargo.toml bench/src | tar x -C "$copy"
export CARGO_TARGET_DIR="$PWD/target/planted"
failed=0

# A fault's name, the file, what is there now, and what is there in its place.
plant() {
    source="crates/relay/split/src/$2"
    OLD=$3 NEW=$4 perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/' "$source" >"$copy/$source"
    if cmp -s "$source" "$copy/$source"; then
        echo "$1: $source has no \`$3\` any more" >&2
        failed=1
        return
    fi
    (cd "$copy" && cargo test --locked --quiet -p midspan-split --test model --no-run) >"$copy/said" 2>&1 || {
        echo "$1: it does not build" >&2
        cat "$copy/said" >&2
        exit 1
    }
    start=$(date +%s)
    if (cd "$copy" && timeout 60 cargo test --locked --quiet -p midspan-split --test model) >"$copy/said" 2>&1; then
        echo "$1: not found" >&2
        failed=1
    else
        echo "$1: found after $(($(date +%s) - start)) s"
    fi
    cp "$source" "$copy/$source"
}

plant "a FIN is dropped" pump.rs 'match legs.shutdown(to) {' 'match Ok::<(), Failure>(()) {'
plant "a quota leaks at the end" worker.rs 'host.ended(over, cause);
        self.release(client, host);' 'host.ended(over, cause);'
plant "a quota leaks where nobody can be tried" worker.rs 'self.release(client, host);
                return Err(error);' 'return Err(error);'
plant "one more than the limit" admission.rs '(flows < limit)' '(flows <= limit)'
plant "one more of a client than the limit" admission.rs '|open| open.flows) >= most {' '|open| open.flows) > most {'
plant "nobody is told who is full" worker.rs 'if self.admission.admit(client)? {' 'if !self.admission.admit(client)? {'
plant "connects are not given up" worker.rs 'self.start(Timer::Connect, now + connect_timeout, key);' ''
plant "connects are given up that were answered" worker.rs 'entry.armed.stop(Timer::Connect);' ''
plant "silence is not told" worker.rs 'self.start(Timer::Silence, now + SILENCE, key);' ''
plant "silence of another server is told" worker.rs 'entry.armed.stop(Timer::Silence);
        }
    }' '}
    }'
plant "a port is tried once" worker.rs 'self.start(Timer::Port, now + (tried_for / 4).max(PORT_RETRY), key);' ''
plant "the last bytes are not looked after" worker.rs 'self.start(Timer::Drain, now + DRAIN_LOOK, key);' ''
plant "what is still stays" worker.rs 'self.end_idle_flows(now, host);' ''
plant "a turn is forgotten" worker.rs 'Action::Turn => self.enqueue(key),' 'Action::Turn => {}'
plant "who waits for a buffer is forgotten" worker.rs 'self.wake_waiting(host);' ''
plant "nobody says when to call again" worker.rs '.chain(idle_sweep)' ''
plant "a server that is silent keeps its client's port" deferred_accept.rs 'drop(connection);
            self.by_ends' 'self.by_ends'
plant "a server that has refused keeps its client's port" deferred_accept.rs 'drop(connection);
        }
        host.send_on' '}
        host.send_on'
plant "a SYN is forgotten" deferred_accept.rs 'self.port_waits.push_back((now + PORT_RETRY, came, syn));' 'drop(syn);'
plant "a client that does not come keeps its server" deferred_accept.rs 'self.arrivals.push_back((due, ends));' ''
plant "stopped timers ring" timers.rs 'self.0[timer as usize] == due' 'due < Armed::NEVER'
plant "a timer is lost" timers.rs 'queue.insert(at, (due, key));' 'let _ = at;'
exit "$failed"
