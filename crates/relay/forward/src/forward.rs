//! A listener of explicit mode.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use ipnet::IpNet;
use midspan_config::{Config, ConfigError, ForwardConfig, ProxyVersion, first_loop};
use midspan_sys::sysctl;

use crate::servers::Servers;

/// A [`ForwardConfig`], with names resolved.
#[derive(Debug)]
pub struct Forward {
    /// Where connections to it are made.
    pub listen: SocketAddr,
    /// Whom they are passed on to.
    pub to: Servers,
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    proxies: Vec<IpNet>,
    /// In what version its servers are told of clients, if they are.
    pub send: Option<ProxyVersion>,
}

/// Checks what depends on this host's addresses, and on those of names that have any.
///
/// # Errors
/// The first `forward` that would be connected to itself.
pub fn check_here(config: &Config) -> Result<(), ConfigError> {
    let resolved = config.forward.iter().filter_map(|forward| Forward::of(forward).ok());
    no_loop(&resolved.map(Arc::new).collect::<Vec<_>>())
}

/// The listeners of a configuration.
///
/// # Errors
/// The first name that has no address; and as [`check_here`].
pub fn resolve(config: &Config) -> Result<Vec<Arc<Forward>>, ConfigError> {
    let mut forwards = Vec::with_capacity(config.forward.len());
    for forward in &config.forward {
        let resolved = Forward::of(forward).map_err(|error| {
            let listen = forward.listen;
            ConfigError::new(format!("`forward` that listens at {listen}: {error}"))
        });
        forwards.push(Arc::new(resolved?));
    }
    no_loop(&forwards)?;
    Ok(forwards)
}

/// Has the listeners, which are those of this configuration, pass on to what their servers' names stand for now. A
/// name without an answer, or by which one would be connected to itself, changes nothing.
pub fn follow_names(config: &Config, forwards: &[Arc<Forward>]) {
    follow_names_by(config, forwards, addresses);
}

fn follow_names_by(
    config: &Config,
    forwards: &[Arc<Forward>],
    resolve: impl Fn(&ForwardConfig) -> io::Result<Vec<SocketAddr>>,
) {
    for (at, config) in config.forward.iter().enumerate().filter(|(_, one)| one.has_names()) {
        let listen = config.listen;
        let addresses = match resolve(config) {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::debug!(%listen, %error, "a server's name has no answer");
                continue;
            }
        };
        let mut ends = ends_of(forwards);
        ends[at].1.clone_from(&addresses);
        if let Some(found) = first_loop(&ends, is_here) {
            tracing::warn!("`forward` {found}; it goes on with the addresses of before");
        } else if forwards[at].to.become_these(&addresses) {
            tracing::info!(%listen, ?addresses, "servers have other addresses");
        }
    }
}

impl Forward {
    /// Resolves its names.
    ///
    /// # Errors
    /// The first name that has no address.
    fn of(config: &ForwardConfig) -> io::Result<Forward> {
        let proxy = config.proxy_protocol.as_ref();
        Ok(Forward {
            listen: config.listen,
            to: Servers::new(addresses(config)?),
            allow: config.allow.clone(),
            deny: config.deny.clone(),
            proxies: proxy.map_or(Vec::new(), |proxy| proxy.from.clone()),
            send: proxy.and_then(|proxy| proxy.send),
        })
    }

    /// Whether its connections begin with a PROXY protocol header.
    pub fn is_told(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Whether this is a proxy that may tell whose connection it passes on.
    pub fn trusts(&self, proxy: IpAddr) -> bool {
        self.proxies.iter().any(|prefix| prefix.contains(&proxy))
    }

    /// Whether this client may connect.
    pub fn takes(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let is_among = |prefixes: &[IpNet]| prefixes.iter().any(|prefix| prefix.contains(&client));
        (self.allow.is_empty() || is_among(&self.allow)) && !is_among(&self.deny)
    }
}

/// All addresses of its servers, in order.
fn addresses(config: &ForwardConfig) -> io::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for name in config.to.names() {
        let addresses = name
            .to_socket_addrs()
            .map_err(|error| io::Error::new(error.kind(), format!("`{name}`: {error}")))?;
        all.extend(addresses);
    }
    Ok(all)
}

fn no_loop(forwards: &[Arc<Forward>]) -> Result<(), ConfigError> {
    match first_loop(&ends_of(forwards), is_here) {
        Some(found) => Err(ConfigError::new(format!("`forward` {found}"))),
        None => Ok(()),
    }
}

fn ends_of(forwards: &[Arc<Forward>]) -> Vec<(SocketAddr, Vec<SocketAddr>)> {
    forwards.iter().map(|forward| (forward.listen, forward.to.addresses())).collect()
}

/// Whether an address is one of the calling thread's network namespace.
fn is_here(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let any_binds = sysctl::get(&format!("net.{family}.ip_nonlocal_bind"));
    address.is_loopback()
        || any_binds.is_ok_and(|any| any == "0") && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_follow_their_names() {
        let text = "[[forward]]\nlisten = \"127.0.0.1:1\"\nto = \"192.0.2.1:80\"\n\
                    [[forward]]\nlisten = \"127.0.0.1:2\"\nto = \"localhost:80\"\n";
        let config: Config = text.parse().unwrap();
        let forwards = resolve(&config).unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let follow = |answer: Option<&str>| {
            follow_names_by(&config, &forwards, |config| {
                assert_eq!(config.listen.port(), 2, "the other has no name");
                answer.map(|to| vec![at(to)]).ok_or_else(|| io::Error::other("no answer"))
            });
            assert_eq!(forwards[0].to.addresses(), [at("192.0.2.1:80")]);
            forwards[1].to.addresses()
        };
        assert_eq!(follow(Some("192.0.2.7:80")), [at("192.0.2.7:80")]);
        assert_eq!(follow(None), [at("192.0.2.7:80")]);
        assert_eq!(follow(Some("127.0.0.1:2")), [at("192.0.2.7:80")]);
        assert_eq!(follow(Some("192.0.2.8:80")), [at("192.0.2.8:80")]);
    }

    #[test]
    fn a_client_is_taken_unless_it_may_not_come() {
        let forward = |rest: &str| {
            let text = format!("listen = \"0.0.0.0:80\"\nto = \"192.0.2.1:80\"\n{rest}");
            Forward::of(&toml::from_str(&text).unwrap()).unwrap()
        };
        let takes = |rest: &str, client: &str| forward(rest).takes(client.parse().unwrap());
        assert!(takes("", "10.0.0.1"));
        let both = "allow = [\"10.0.0.0/8\", \"fd00::/8\"]\ndeny = [\"10.9.0.0/16\"]";
        for (client, is_taken) in [
            ("10.0.0.1", true),
            ("10.9.0.1", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:10.9.0.1", false),
            ("192.0.2.1", false),
            ("fd00::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(takes(both, client), is_taken, "{client}");
        }
    }
}
