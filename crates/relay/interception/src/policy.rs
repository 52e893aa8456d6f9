//! Which connections are split, told to the steering program.

use ipnet::IpNet;
use midspan_config::{Config, DecideMode, Handshake};
use midspan_steer::{Choice, Policy};

/// The policy of a configuration, as the steering program takes it.
pub fn steering_policy(config: &Config) -> Policy {
    let said = |split: &[IpNet], pass: &[IpNet]| {
        let split = split.iter().map(|prefix| (*prefix, Choice::Split));
        split.chain(pass.iter().map(|prefix| (*prefix, Choice::Pass))).collect::<Vec<_>>()
    };
    let policy = &config.policy;
    // The first that holds a port decides.
    let pass = policy.pass_ports.iter().map(|ports| (ports.0.clone(), Choice::Pass));
    let split = policy.split_ports.iter().map(|ports| (ports.0.clone(), Choice::Split));
    Policy {
        clients: {
            let all = match config.handshake {
                None | Some(Handshake::Early) => Choice::Split,
                Some(Handshake::Confirmed) => Choice::Confirm,
                Some(Handshake::Learned) => Choice::Learn,
            };
            let all = config.clients.iter().map(|prefix| (*prefix, all));
            let pass = policy.pass_clients.iter().map(|prefix| (*prefix, Choice::Pass));
            let confirm = policy.confirm_clients.iter();
            let confirm = confirm.map(|prefix| (*prefix, Choice::Confirm));
            all.chain(pass).chain(confirm).collect()
        },
        confirm_servers: policy.confirm_servers.clone(),
        servers: said(&policy.split_servers, &policy.pass_servers),
        ports: pass.chain(split).collect(),
        pass_dscp: policy.pass_dscp.clone(),
        holdout_per_mille: policy.holdout,
        holdout_slot: policy.slot().into(),
        decides: config.decide.as_ref().is_some_and(|decide| decide.mode == DecideMode::On),
        // Two seconds' worth at once.
        syn_rate: config.limits.syn_rate.map(|rate| (rate, rate.saturating_mul(2))),
        half_open: config.limits.half_open,
        // No more than is checked.
        reordering_hold_us: config.reordering_hold.as_micros() as u32,
    }
}
