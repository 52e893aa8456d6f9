//! The split relay: two sockets on a host, and between them the decisions of the live relay.

use midspan_split::{Cause, Flow, Leg, PerLeg, ReadAhead, ReceiveWindow, Verdict, Watermarks};
use midspan_tcp::{Endpoint, Stage};

use crate::world::{Setup, Socket, SocketId, User, World};

/// One flow that the relay splits. Its client leg is connected early, as live; then it connects
/// onward.
#[derive(Debug)]
pub(crate) struct Splitter {
    flow: Flow,
    /// How far each leg is read ahead of the other.
    ahead: PerLeg<ReadAhead>,
    legs: PerLeg<Option<SocketId>>,
    /// What the server leg is opened with, and what it leads to, until it is.
    onward: Option<Box<(Setup, (Setup, User))>>,
    /// The windows that it advertises on each leg, where sockets do not decide: client, server.
    windows: Option<[ReceiveWindow; 2]>,
    /// Whatever it held is given up.
    over: bool,
}

impl Splitter {
    /// Waits for its client. `server` is the socket that the onward connection is to end in.
    pub(crate) fn new(
        ahead: PerLeg<ReadAhead>,
        server_leg: Setup,
        server: (Setup, User),
    ) -> Splitter {
        Splitter {
            flow: Flow::new(Watermarks::up_to(ahead.client.limit())),
            ahead,
            legs: PerLeg::default(),
            onward: Some(Box::new((server_leg, server))),
            windows: None,
            over: false,
        }
    }

    /// All that it may have of a direction is `buffer` bytes, sockets' buffers included.
    pub(crate) fn share(&mut self, buffer: u64, mss: u32) {
        self.windows = Some([ReceiveWindow::new(buffer, u64::from(mss)); 2]);
    }

    /// The sockets of its legs.
    pub(crate) fn set_client_leg(&mut self, socket: SocketId) {
        self.legs.client = Some(socket);
    }

    /// The relay's socket towards the server, once it connects.
    pub(crate) fn server_leg(&self) -> Option<SocketId> {
        self.legs.server
    }

    /// The next relay's flow, if it would lead to one and has not connected yet.
    pub(crate) fn awaited(&self) -> Option<usize> {
        match self.onward.as_deref() {
            Some((_, (_, User::Relay(next)))) => Some(*next),
            _ => None,
        }
    }

    /// Bytes that it holds between its sockets.
    pub(crate) fn held(&self) -> u64 {
        Leg::BOTH.into_iter().map(|from| self.flow.occupied(from)).sum()
    }

    /// Does what can be done for flow `number`, on both legs.
    pub(crate) fn turn(world: &mut World, number: usize) {
        if world.flows[number].over {
            return;
        }
        Splitter::connect_onward(world, number);
        for leg in Leg::BOTH {
            Splitter::notice(world, number, leg);
        }
        for from in Leg::BOTH {
            Splitter::pump(world, number, from);
            Splitter::look_ahead(world, number, from);
        }
        for leg in Leg::BOTH {
            Splitter::finish(world, number, leg);
        }
        let abort = match world.flows[number].flow.verdict() {
            Verdict::Continue => None,
            Verdict::Close => Some(false),
            Verdict::Abort(_) => Some(true),
        };
        Splitter::advertise(world, number);
        for leg in Leg::BOTH {
            let Some(id) = world.flows[number].legs[leg] else { continue };
            if abort == Some(true)
                && !world.flows[number].flow.has_ended(leg)
                && let Some(endpoint) = endpoint(world, number, leg)
            {
                endpoint.abort();
            }
            world.flush(id);
        }
        world.flows[number].over = abort.is_some();
    }

    /// Sees how far a leg is to be read ahead of the other one.
    fn look_ahead(world: &mut World, number: usize, from: Leg) {
        let now = world.now;
        let flow = &world.flows[number];
        let ahead = &flow.ahead[from];
        if !ahead.is_of_use(flow.flow.total_received(from)) || !ahead.is_due(now) {
            return;
        }
        let Some(feeding) = endpoint(world, number, from).map(|feeding| feeding.info()) else {
            return;
        };
        let Some(draining) = endpoint(world, number, from.other()) else { return };
        let (acknowledged, round_trip) =
            (draining.acknowledged(), feeding.rtt.max(feeding.rcv_rtt));
        let splitter = &mut world.flows[number];
        if !splitter.ahead[from].look(now, acknowledged, round_trip) {
            return;
        }
        let ahead = splitter.ahead[from];
        splitter.flow.set_marks(from, Watermarks::up_to(ahead.limit()));
        let unsent = ahead.unsent_limit().map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        if let Some(draining) = endpoint(world, number, from.other()) {
            draining.set_notsent_lowat(unsent);
        }
    }

    /// Of a shared buffer the window of each leg is what is left when all is counted that came in there and
    /// is not acknowledged on the other one.
    fn advertise(world: &mut World, number: usize) {
        let Some(mut windows) = world.flows[number].windows else { return };
        for (window, leg) in windows.iter_mut().zip([Leg::Client, Leg::Server]) {
            let far = endpoint(world, number, leg.other());
            let acknowledged = far.map_or(0, |far| far.acknowledged());
            if let Some(near) = endpoint(world, number, leg)
                && near.stage() == Stage::Established
            {
                let received = near.received();
                let open = window.advertise(received, received.saturating_sub(acknowledged));
                near.set_receive_window(Some(open));
            }
        }
        world.flows[number].windows = Some(windows);
    }

    /// The client is connected: so is the server to be.
    fn connect_onward(world: &mut World, number: usize) {
        let open = endpoint(world, number, Leg::Client)
            .is_some_and(|client| client.stage() != Stage::SynReceived);
        if open && let Some(onward) = world.flows[number].onward.take() {
            let (leg, server) = *onward;
            let client = world.flows[number].legs.client;
            let Some(ue) = client.and_then(|id| world.sockets[id].as_ref()).map(|leg| leg.ue)
            else {
                return;
            };
            let next = match server.1 {
                User::Relay(next) => Some(next),
                User::Application(_) => None,
            };
            let (socket, peer) = world.connect(ue, (leg, User::Relay(number)), server);
            world.flows[number].legs.server = Some(socket);
            // Another relay, nearer the server.
            if let Some(next) = next {
                world.flows[next].set_client_leg(peer);
            }
        }
    }

    /// What has become of a leg.
    fn notice(world: &mut World, number: usize, leg: Leg) {
        let Some(stage) = endpoint(world, number, leg).map(|endpoint| endpoint.stage()) else {
            return;
        };
        let flow = &mut world.flows[number].flow;
        match stage {
            Stage::Failed(_) if flow.is_connecting() && leg == Leg::Server => {
                flow.fail(Cause::ConnectFailed);
            }
            Stage::Failed(_) => flow.fail(Cause::Reset(leg)),
            Stage::Established if leg == Leg::Server => flow.connected(),
            _ => {}
        }
    }

    /// Moves what may be moved from one leg to the other.
    fn pump(world: &mut World, number: usize, from: Leg) {
        let now = world.now;
        loop {
            let most = world.flows[number].flow.may_read(from);
            let Some(source) = endpoint(world, number, from) else { return };
            let read = source.read(now, most);
            let finished = source.is_finished();
            world.flows[number].flow.received(from, read);
            if finished && !world.flows[number].flow.is_connecting() {
                world.flows[number].flow.end_of_stream(from);
            }
            let held = world.flows[number].flow.to_write(from.other());
            let Some(sink) = endpoint(world, number, from.other()) else { return };
            let written = sink.write(held);
            world.flows[number].flow.sent(from.other(), written);
            if read == 0 && written == 0 {
                return;
            }
        }
    }

    /// Passes on the end of a direction.
    fn finish(world: &mut World, number: usize, to: Leg) {
        if world.flows[number].flow.must_finish(to)
            && let Some(id) = world.flows[number].legs[to]
        {
            // What was written is on its way before the FIN is asked for.
            world.flush(id);
            if let Some(endpoint) = endpoint(world, number, to) {
                endpoint.close();
            }
            world.flows[number].flow.finished(to);
        }
        if world.flows[number].flow.awaits_drain(to)
            && endpoint(world, number, to).is_some_and(|endpoint| endpoint.is_drained())
        {
            world.flows[number].flow.drained(to);
        }
    }
}

fn endpoint(world: &mut World, number: usize, leg: Leg) -> Option<&mut Endpoint> {
    let id = world.flows[number].legs[leg]?;
    world.sockets[id].as_mut().and_then(Socket::endpoint_mut)
}
