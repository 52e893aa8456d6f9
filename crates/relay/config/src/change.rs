//! What of a configuration may change while the relay runs.

use toml::Value;

use super::{Config, ConfigError};

/// Tables and keys that may, whoever steers.
const LIVE: [&str; 6] =
    ["connect_timeout", "drain_timeout", "client_leg", "server_leg", "limits", "forward"];
/// Those that may where BPF steers.
const LIVE_BY_BPF: [&str; 3] = ["clients", "policy", "reordering_hold"];

impl Config {
    /// The keys in which another configuration differs, if all of them may change while the relay runs;
    /// `by_bpf` if BPF steers.
    ///
    /// # Errors
    /// The first key that may not.
    pub fn change_to(&self, new: &Config, by_bpf: bool) -> Result<Vec<String>, ConfigError> {
        let value = |config: &Config| Value::try_from(config).map_err(ConfigError::new);
        let mut changes = Vec::new();
        differences("", Some(&value(self)?), Some(&value(new)?), &mut changes);
        for change in &changes {
            self.may_change(change, new, by_bpf).map_err(|why| {
                ConfigError::new(format!(
                    "`{}` {why}; nothing was changed (`midspan relay --replace` starts another relay \
                     in this one's place)",
                    change.key
                ))
            })?;
        }
        Ok(changes.into_iter().map(|change| change.key).collect())
    }

    fn may_change(&self, change: &Change, new: &Config, by_bpf: bool) -> Result<(), &'static str> {
        let first = change.key.split('.').next().unwrap_or_default();
        if LIVE_BY_BPF.contains(&first) || change.key == "limits.syn_rate" {
            if !by_bpf {
                return Err("cannot change while the relay runs, unless BPF steers");
            }
        } else if !LIVE.contains(&first) {
            return Err("cannot change while the relay runs");
        }
        let families = |config: &Config| {
            let has = |is_v4| config.clients.iter().any(|prefix| prefix.addr().is_ipv4() == is_v4);
            [has(true), has(false)]
        };
        match change.key.as_str() {
            "clients" if families(self) != families(new) => {
                Err("cannot gain or lose an IP version while the relay runs")
            }
            "forward" if self.listens() != new.listens() => {
                Err("cannot listen elsewhere while the relay runs")
            }
            // Connections have it from their listener, which cannot go back to what it never had.
            key if key.starts_with("client_leg.") && change.is_removed => {
                Err("can be changed but not removed while the relay runs")
            }
            // What carries held connections is made at the start.
            key if key.starts_with("policy.confirm_") && !self.confirms() => {
                Err("cannot begin while the relay runs, if no connection was confirmed before")
            }
            "client_leg.dscp" | "client_leg.rto_min" => Err("cannot change while the relay runs"),
            _ => Ok(()),
        }
    }

    fn listens(&self) -> Vec<core::net::SocketAddr> {
        self.forward.iter().map(|forward| forward.listen).collect()
    }
}

/// A key whose value is another now.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    key: String,
    is_removed: bool,
}

fn differences(path: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Change>) {
    let none = toml::Table::new();
    let table = |value: Option<&Value>| match value {
        Some(Value::Table(table)) => Some(table.clone()),
        None => Some(none.clone()),
        Some(_) => None,
    };
    match (table(old), table(new)) {
        (Some(old_table), Some(new_table)) if old.is_some() || new.is_some() => {
            let mut keys: Vec<&String> = old_table.keys().chain(new_table.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(&below, old_table.get(key), new_table.get(key), found);
            }
            // A table with nothing in it may still say something by being there.
            if old.is_some() != new.is_some() && old_table.is_empty() && new_table.is_empty() {
                found.push(Change { key: path.to_owned(), is_removed: new.is_none() });
            }
        }
        _ if old == new => {}
        _ => found.push(Change { key: path.to_owned(), is_removed: new.is_none() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "clients = [\"10.0.0.0/8\"]\nhandshake = \"early\"\n";

    fn change(old: &str, new: &str, by_bpf: bool) -> Result<Vec<String>, String> {
        let config = |text: &str| format!("{BASE}{text}").parse::<Config>().unwrap();
        config(old).change_to(&config(new), by_bpf).map_err(|error| error.to_string())
    }

    #[test]
    fn what_may_change_is_named() {
        assert_eq!(change("", "", false), Ok(vec![]));
        for (old, new, keys) in [
            ("", "connect_timeout = \"1 s\"", vec!["connect_timeout"]),
            (
                "",
                "[server_leg]\ncongestion_control = \"reno\"",
                vec!["server_leg.congestion_control"],
            ),
            (
                "[limits]\nflows = 5\nflows_per_client = 2",
                "[limits]\nflows = 6",
                vec!["limits.flows", "limits.flows_per_client"],
            ),
            (
                "",
                "[policy]\npass_ports = [22]\nholdout = 5",
                vec!["policy.holdout", "policy.pass_ports"],
            ),
            (
                "[client_leg]\nsend_buffer = \"1 MiB\"",
                "[client_leg]\nsend_buffer = \"2 MiB\"",
                vec!["client_leg.send_buffer"],
            ),
            ("", "[server_leg]\ninitial_window = 20", vec!["server_leg.initial_window"]),
            (
                "[[forward]]\nlisten = \"0.0.0.0:80\"\nto = \"a:1\"",
                "[[forward]]\nlisten = \"0.0.0.0:80\"\nto = \"b:1\"",
                vec!["forward"],
            ),
        ] {
            let keys = keys.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(change(old, new, true), Ok(keys), "{new}");
        }
    }

    #[test]
    fn what_may_not_change_is_refused_by_name() {
        for (old, new, key) in [
            ("", "workers = 3", "`workers`"),
            ("", "mark = 7", "`mark`"),
            ("", "port = 7", "`port`"),
            ("", "interception = \"bpf\"", "`interception`"),
            ("", "[metrics]", "`metrics.listen`"),
            ("", "[policy]\nconfirm_servers = [\"10.9.0.0/16\"]", "`policy.confirm_servers`"),
            ("[admin]", "", "`admin.socket`"),
            ("", "[log]\naddresses = \"plain\"", "`log.addresses`"),
            ("[client_leg]\nsend_buffer = \"1 MiB\"", "", "`client_leg.send_buffer`"),
            (
                "[[forward]]\nlisten = \"0.0.0.0:80\"\nto = \"a:1\"",
                "[[forward]]\nlisten = \"0.0.0.0:81\"\nto = \"a:1\"",
                "`forward`",
            ),
        ] {
            let said = change(old, new, true).unwrap_err();
            assert!(said.starts_with(key) && said.contains("--replace"), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
        assert!(change("", "[limits]\nsyn_rate = 5", false).unwrap_err().contains("BPF"));
        let both: Config = "clients = [\"10.0.0.0/8\", \"fd00::/8\"]".parse().unwrap();
        let one: Config = BASE.parse().unwrap();
        assert!(one.change_to(&both, true).unwrap_err().to_string().contains("IP version"));
    }
}
