//! What connections to servers begin with: as the configuration says, or by what earlier ones to the same server have shown.

use std::io;

use midspan_legs::LiveFlow;
use midspan_split::{Leg, Shown};
use midspan_steer::FirstWindow;
use midspan_sys::socket::tcp_info;
use midspan_units::{Rate, Span, Time};

use super::host::LiveHost;

impl LiveHost {
    /// Settles what a server leg begins with that is connected. Nothing was sent there yet.
    pub(super) fn begin_server_leg(&self, flow: &mut LiveFlow) {
        let Some(program) = &self.context.first_window else { return };
        let begun = match self.settings.config.server_leg.initial_window {
            Some(packets) => begin_with(program, flow, packets),
            None => self.begin_as_remembered(program, flow),
        };
        if let Err(error) = begun {
            tracing::debug!(%error, "a server leg's initial window is the kernel's");
        }
    }

    fn begin_as_remembered(&self, program: &FirstWindow, flow: &mut LiveFlow) -> io::Result<()> {
        let (paths, now) = (&self.context.server_paths, self.time());
        let server = flow.metadata().server.ip();
        flow.server_window = None;
        if !paths.is_known(&server, now) {
            return Ok(());
        }
        let info = tcp_info(flow.fd(Leg::Server))?;
        let handshake = Span::from_micros(info.rtt.into());
        let Some(packets) = paths.first(&server, now, handshake, info.snd_cwnd) else {
            return Ok(());
        };
        program.set(flow.fd(Leg::Server), packets)?;
        flow.server_window = Some(packets);
        self.counters().wider_windows.add(1);
        Ok(())
    }

    /// Takes in what a flow that is over, and has `sent` its server so many bytes, has shown of the way there.
    pub(super) fn remember_server(&self, flow: &LiveFlow, sent: u64) {
        let is_fixed = self.settings.config.server_leg.initial_window.is_some();
        if sent < Shown::LEAST || is_fixed || self.context.first_window.is_none() {
            return;
        }
        let Ok(info) = tcp_info(flow.fd(Leg::Server)) else { return };
        let shown = Shown {
            began: flow.server_window,
            window: info.snd_cwnd,
            sent: info.data_segs_out,
            lost: info.total_retrans.saturating_sub(info.dsack_dups),
            rate: Rate::of(info.bytes_acked, Span::from_micros(info.busy_time)),
            // The kernel's "none was measured".
            round_trip: match info.min_rtt {
                u32::MAX => Span::ZERO,
                micros => Span::from_micros(micros.into()),
            },
            packet: info.snd_mss,
        };
        self.context.server_paths.over(flow.metadata().server.ip(), self.time(), shown);
    }

    fn time(&self) -> Time {
        self.context.epoch.time(self.now)
    }
}

/// As the configuration has it, unless the leg's SYN was lost (RFC 6928, section 2).
fn begin_with(program: &FirstWindow, flow: &LiveFlow, packets: u32) -> io::Result<()> {
    let leg = flow.fd(Leg::Server);
    match tcp_info(leg)?.snd_cwnd {
        1 => Ok(()),
        _ => program.set(leg, packets),
    }
}
