//! Sockets as a scenario sets them up.

use midspan_cc::{Control, Kind};
use midspan_scenario::{Dscp, Host as HostSpec, LegConfig, Relay, TcpMemory};
use midspan_tcp::{Config, EcnMode, Memory};
use midspan_units::{ByteSize, Span};

use crate::error::Error;
use crate::externals::Controls;
use crate::host::Host;
use crate::socket::Setup;

/// A socket of `host`, as its kernel sets it up.
pub(crate) fn of_host(
    host: Host,
    spec: &HostSpec,
    controls: &Controls<'_>,
) -> Result<Setup, Error> {
    let linux = Config::default();
    let memory = |memory: TcpMemory| Memory { initial: memory.initial, max: memory.max };
    let mut setup = Setup {
        host,
        config: Config {
            tcp_rmem: memory(spec.buffers.rmem),
            tcp_wmem: memory(spec.buffers.wmem),
            rto_min: spec.rto_min.unwrap_or(linux.rto_min),
            tcp_comp_sack_delay: spec.comp_sack_delay.unwrap_or(linux.tcp_comp_sack_delay),
            tcp_comp_sack_nr: spec.comp_sack_nr.map_or(linux.tcp_comp_sack_nr, u32::from),
            tcp_sack: spec.sack,
            tcp_ecn: if spec.ecn { EcnMode::Active } else { EcnMode::Passive },
            initcwnd: spec.initcwnd.unwrap_or(linux.initcwnd),
            quickack: spec.quickack,
            ..linux
        },
        control: controls.named(&spec.congestion_control)?,
        remembers: spec.metrics_save,
        reordering_hold: Span::ZERO,
    };
    suit(&mut setup);
    Ok(setup)
}

/// Gives a socket another congestion control.
pub(crate) fn set_control(setup: &mut Setup, control: Control) {
    setup.control = control;
    suit(setup);
}

/// What the glue of a congestion control sets in the kernel. TCP-ME sends packets one by one, as a policer
/// whose bucket holds one drops the second of two, has the first ten paced as well, and counts headers, as
/// the policer does.
fn suit(setup: &mut Setup) {
    if setup.control.name() == "me" {
        setup.config.tcp_min_tso_segs = 1;
        setup.config.initcwnd = 1;
        setup.config.paced_headers = 52;
    }
}

/// Whether the glue of a congestion control makes its rate the socket's greatest, where it can be read: of
/// those that set window and rate throughout only TCP-ME's does.
pub(crate) fn shows_rate(control: &Control) -> bool {
    control.kind() == Kind::Window || control.name() == "me"
}

/// A relay's socket towards the UE: what the scenario leaves open is the relay's own choice, and else its host's.
pub(crate) fn of_client_leg(
    host: Host,
    relay: &Relay,
    spec: &HostSpec,
    controls: &Controls<'_>,
) -> Result<Setup, Error> {
    let control = controls.named(relay.client_control())?;
    let mut setup = of_leg(host, &relay.client_leg, control, spec, controls)?;
    setup.reordering_hold = relay.reordering_hold();
    setup.config.rto_min = relay.rto_min(spec);
    // A window is half of its buffer.
    let (window, memory) = (relay.initial_receive_window(), &mut setup.config.tcp_rmem);
    let buffer = u32::try_from(2 * window.as_bytes()).unwrap_or(u32::MAX);
    memory.initial = memory.initial.max(buffer.min(memory.max));
    Ok(setup)
}

/// A relay's socket towards the server: what the scenario leaves open is the choice of the relay's host.
pub(crate) fn of_server_leg(
    host: Host,
    relay: &Relay,
    spec: &HostSpec,
    controls: &Controls<'_>,
) -> Result<Setup, Error> {
    let leg = &relay.server_leg;
    let control = leg.congestion_control.as_deref().unwrap_or(&spec.congestion_control);
    let mut setup = of_leg(host, leg, controls.named(control)?, spec, controls)?;
    if let Some(packets) = leg.initial_window {
        setup.config.initcwnd = packets;
    }
    Ok(setup)
}

fn of_leg(
    host: Host,
    leg: &LegConfig,
    control: Control,
    spec: &HostSpec,
    controls: &Controls<'_>,
) -> Result<Setup, Error> {
    // What asks a peer that is silent, and what is marked, changes nothing here; to say so beats to leave it out.
    let without_model = [
        ("keepalive", leg.keepalive.is_some()),
        ("user_timeout", leg.user_timeout.is_some()),
        ("max_segment", leg.max_segment.is_some()),
        ("dscp", leg.dscp != Dscp::default()),
    ];
    if let Some((key, _)) = without_model.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Error::Leg(key));
    }
    let mut setup = of_host(host, spec, controls)?;
    set_control(&mut setup, control);
    let bytes = |size: Option<ByteSize>| {
        size.map(|size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX / 2))
    };
    setup.config.so_rcvbuf = bytes(leg.receive_buffer);
    setup.config.so_sndbuf = bytes(leg.send_buffer);
    setup.config.tcp_notsent_lowat = bytes(leg.notsent_lowat);
    setup.config.so_max_pacing_rate = leg.max_pacing_rate;
    setup.config.tcp_nodelay = true;
    Ok(setup)
}

/// A socket of a relay whose buffer is shared takes all that comes, and all that is to go.
pub(crate) fn share(buffer: Option<ByteSize>, setup: &mut Setup) {
    if let Some(buffer) = buffer {
        let bytes = u32::try_from(buffer.as_bytes()).unwrap_or(u32::MAX / 2);
        setup.config.so_rcvbuf = Some(bytes);
        setup.config.so_sndbuf = Some(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::externals::Externals;
    use crate::host::UE;
    use midspan_units::Rate;

    #[test]
    fn a_host_holds_sacks_back_as_its_keys_say() {
        let externals = Externals::default();
        let controls = Controls::new(&externals, 1);
        let linux = of_host(UE, &HostSpec::default(), &controls).unwrap().config;
        assert_eq!(linux.tcp_comp_sack_delay, Config::default().tcp_comp_sack_delay);
        let delay = Some(Span::from_millis(12));
        let spec =
            HostSpec { comp_sack_delay: delay, comp_sack_nr: Some(255), ..HostSpec::default() };
        let config = of_host(UE, &spec, &controls).unwrap().config;
        assert_eq!((Some(config.tcp_comp_sack_delay), config.tcp_comp_sack_nr), (delay, 255));
    }

    #[test]
    fn a_leg_has_what_it_is_set_to_have_or_says_that_it_cannot() {
        let externals = Externals::default();
        let controls = Controls::new(&externals, 1);
        let of = |client_leg: LegConfig| {
            let relay = Relay { client_leg, ..Relay::default() };
            of_client_leg(UE, &relay, &HostSpec::default(), &controls)
        };
        let rate = Some(Rate::from_bps(8_000_000));
        let leg = LegConfig { max_pacing_rate: rate, ..LegConfig::default() };
        assert_eq!(of(leg).unwrap().config.so_max_pacing_rate, rate);
        let minute = Some(Span::from_secs(60));
        let none = LegConfig::default();
        for (leg, key) in [
            (LegConfig { keepalive: minute, ..none.clone() }, "keepalive"),
            (LegConfig { user_timeout: minute, ..none.clone() }, "user_timeout"),
            (LegConfig { max_segment: Some(1300), ..none.clone() }, "max_segment"),
            (LegConfig { dscp: Dscp::Always(10), ..none }, "dscp"),
        ] {
            assert_eq!(of(leg).unwrap_err(), Error::Leg(key));
        }
    }
}
