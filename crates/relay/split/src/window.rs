/// The receive window that a proxy advertises on one leg so that its own buffer cannot overflow:
/// the buffer, less what is not yet sent on the other leg, less what is in flight there
/// (Lee, Choi, Bahk, "Simulation study of TCP proxy in multi-connectivity enabled 5G mmWave
/// network", equation 3).
///
/// The right edge moves only when it can move by a full segment or half the buffer, whichever is
/// less (silly window avoidance by the receiver, RFC 9293, 3.8.6.2.2), and never moves back
/// (RFC 9293, 3.8.6).
///
/// Sockets need none of this, their kernel does it; a simulated TCP asks here.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveWindow {
    buffer: u64,
    step: u64,
    edge: u64,
}

impl ReceiveWindow {
    /// For a buffer of `buffer` bytes that is filled by segments of up to `mss` bytes.
    pub const fn new(buffer: u64, mss: u64) -> Self {
        let half = buffer / 2;
        ReceiveWindow { buffer, step: if mss < half { mss } else { half }, edge: buffer }
    }

    /// The window to advertise now, in bytes, after `received` bytes in all, of which `occupied`
    /// are still in the buffer, sent or not.
    pub fn advertise(&mut self, received: u64, occupied: u64) -> u64 {
        let edge = received + self.buffer.saturating_sub(occupied);
        if edge >= self.edge + self.step {
            self.edge = edge;
        }
        self.edge.saturating_sub(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u64 = 1460;

    #[test]
    fn the_window_is_the_buffer_less_unsent_less_in_flight() {
        let mut window = ReceiveWindow::new(1 << 20, MSS);
        assert_eq!(window.advertise(0, 0), 1 << 20);
        // 300,000 came in: 100,000 of them are acknowledged, 200,000 unsent or in flight.
        assert_eq!(window.advertise(300_000, 200_000), (1 << 20) - 200_000);
    }

    #[test]
    fn it_does_not_open_by_less_than_a_segment() {
        let mut window = ReceiveWindow::new(10 * MSS, MSS);
        assert_eq!(window.advertise(10 * MSS, 10 * MSS), 0);
        assert_eq!(window.advertise(10 * MSS, 10 * MSS - 1), 0);
        assert_eq!(window.advertise(10 * MSS, 9 * MSS + 1), 0);
        assert_eq!(window.advertise(10 * MSS, 9 * MSS), MSS);
    }

    #[test]
    fn a_buffer_below_two_segments_opens_by_halves() {
        let mut window = ReceiveWindow::new(MSS, MSS);
        assert_eq!(window.advertise(MSS, MSS), 0);
        assert_eq!(window.advertise(MSS, MSS / 2 + 1), 0);
        assert_eq!(window.advertise(MSS, MSS / 2), MSS / 2);
    }

    proptest! {
        /// A sender that keeps to the window never overflows the buffer, the edge never moves
        /// back, and an empty buffer always opens the window again.
        #[test]
        fn the_buffer_never_overflows(
            buffer in 1u64..100_000,
            mss in 1u64..9000,
            steps in prop::collection::vec((0u64..20_000, 0u64..20_000), 1..200),
        ) {
            let mut window = ReceiveWindow::new(buffer, mss);
            let (mut received, mut occupied, mut edge) = (0, 0, 0);
            for (arriving, leaving) in steps {
                let open = window.advertise(received, occupied);
                prop_assert!(received + open >= edge);
                edge = received + open;
                let taken = arriving.min(open);
                received += taken;
                occupied += taken;
                prop_assert!(occupied <= buffer);
                occupied -= leaving.min(occupied);
            }
            prop_assert!(window.advertise(received, 0) > 0);
        }
    }
}
