/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a congestion control is asked, and what it answers: the interface between a TCP (the kernel
 * through BPF, the simulator through Rust) and the algorithms, each of which is one header.
 *
 * An algorithm NAME is a `struct NAME`, its state, and those of these functions that it needs:
 *
 *   void NAME_init(struct NAME *, struct cc *)
 *       The connection is established. `cwnd`, `ssthresh` and the stack's fields are set, the state
 *       is zero.
 *   void NAME_measure(struct NAME *, struct cc *, const struct cc_sample *)
 *       With every acknowledgement that acknowledges something, in whatever state, before the
 *       window is changed.
 *   void NAME_grow(struct NAME *, struct cc *, const struct cc_sample *)
 *       CC_WINDOW only: as `measure` and after it, while the stack is not reducing the window:
 *       slow start and congestion avoidance are the algorithm's.
 *   void NAME_control(struct NAME *, struct cc *, const struct cc_sample *)
 *       CC_RATE only: as `measure` and after it, in whatever state: sets window and pacing rate.
 *   u32 NAME_ssthresh(struct NAME *, struct cc *)
 *       A reduction begins: of loss detected by acknowledgements, of ECN, or of a retransmission
 *       timeout. Returns the threshold, in packets, which the stack stores; the window itself is the
 *       stack's. `state` is still the one before: CC_STATE follows, says which reduction it is, and may
 *       change the threshold.
 *   u32 NAME_undo(struct NAME *, struct cc *)
 *       The reduction was a mistake (Eifel, RFC 3522; F-RTO, RFC 5682; DSACK, RFC 3708). Returns the
 *       window to go back to.
 *   void NAME_event(struct NAME *, struct cc *, enum cc_event)
 *       See `enum cc_event`.
 *   u32 NAME_send(struct NAME *, struct cc *, const struct cc_feedback *)
 *       The stack is about to send as much as window and pacing allow: may set both, if the network has
 *       said something since the last acknowledgement. Returns the least number of packets that go back to
 *       back where pacing would part them. Without it that is CC_BURST_USUAL.
 *
 * With CC_WINDOW the stack does what it does for every such algorithm in Linux: proportional rate
 * reduction (RFC 9937) down to the threshold, window = threshold when that ends, a window of one
 * packet after a timeout, growth from there by `grow`. With CC_RATE the algorithm owns the window in
 * recovery too, and the stack calls `ssthresh` only to tell it.
 *
 * Windows are counted in packets of `mss` bytes of payload, rates in bytes of payload per second,
 * times in the unit that the name ends with. Counters of packets and sequence numbers wrap. */
#pragma once

#include "fixed.h"

/* The window never leaves [1, CC_CWND_MOST]: more than 400 Gbit/s x 10 s in packets of 1448 bytes. */
#define CC_CWND_MOST (1u << 30)
/* The threshold before there was any loss: slow start without end. */
#define CC_SSTHRESH_INFINITE 0x7fffffffu
/* Below which no reduction takes the threshold (RFC 5681, equation 4). */
#define CC_SSTHRESH_LEAST 2u

/* What segmentation offload takes together at least, however slow the pace (Linux's tcp_min_tso_segs). */
#define CC_BURST_USUAL 2u

enum cc_kind {
	CC_WINDOW, /* Linux's `cong_avoid`: the stack reduces, the algorithm grows */
	CC_RATE,   /* Linux's `cong_control`: the algorithm sets window and rate throughout */
};

/* As Linux numbers them. */
enum cc_state {
	CC_OPEN,
	CC_DISORDER, /* duplicate acknowledgements or SACK, nothing held lost yet */
	CC_CWR,      /* reducing because of ECN, or of a full queue of this host */
	CC_RECOVERY, /* reducing because of loss, repaired by fast retransmission */
	CC_LOSS,     /* after a retransmission timeout */
};

enum cc_event {
	CC_TX_START,     /* a packet is sent when none was in flight */
	CC_CWND_RESTART, /* the same after more than a timeout: the stack has taken the window back
			    (RFC 2861) */
	CC_REDUCED,      /* a reduction for ECN or loss is over: the window is the threshold */
	CC_STATE,        /* `state` has changed */
};

enum cc_hystart {
	CC_HYSTART_OFF,
	CC_HYSTART_CLASSIC,    /* Ha, Rhee, "Taming the elephants: New TCP slow start", 2011 */
	CC_HYSTART_PLUS_PLUS,  /* RFC 9406 */
};

/* What may be chosen per connection; all zero is not a configuration, see `CC_CONFIG_DEFAULT`. */
struct cc_config {
	u32 hystart;           /* enum cc_hystart, in CUBIC and what is built on it */
	u32 cubic_constant_alpha; /* CUBIC: not 0: alpha_cubic stays below 1 at every window, as in
				     RFC 8312 and in Linux, the default; 0: as RFC 9438 says
				     it should be (section 4.3) */
	u32 cubic_counted;     /* CUBIC: not 0: grows by a packet for each so many acknowledged, as in the
				  2008 paper and in Linux; 0: the window is where RFC 9438 has it */
	u32 cubic_fast_convergence; /* CUBIC: RFC 9438, section 4.7; not 0 wherever flows share a link */
	u32 me_initial_rate;   /* TCP-ME: bytes per second at the start */
};

#define CC_CONFIG_DEFAULT                                                                          \
	{                                                                                          \
		.hystart = CC_HYSTART_CLASSIC,                                                     \
		.cubic_constant_alpha = 1,                                                         \
		.cubic_counted = 0,                                                                \
		.cubic_fast_convergence = 1,                                                       \
		.me_initial_rate = 25000,                                                          \
	}

/* The connection. */
struct cc {
	/* What the algorithm says. */
	u32 cwnd;         /* packets that may be in flight */
	u32 ssthresh;     /* packets; slow start is below it */
	/* CC_RATE: the rate at which to send; 0 is unpaced. CC_WINDOW: a rate never to exceed; 0 is
	 * none, and the stack paces as it likes. */
	u64 pacing_rate;

	/* What the stack says, renewed before every call. */
	u64 now_ns;       /* on any clock that does not go back */
	u32 mss;          /* bytes of payload in a full packet */
	u32 state;        /* enum cc_state */
	u32 cwnd_most;    /* window that the stack would use at most */
	u32 in_flight;    /* packets sent, and neither delivered nor held lost */
	u32 delivered;    /* packets delivered since the connection began */
	u32 delivered_ce; /* of these, how many had met CE, as the receiver says by ECN-Echo */
	u32 lost;         /* packets held lost since the connection began, each time counted */
	u32 snd_una;      /* first byte not acknowledged */
	u32 snd_nxt;      /* next byte to send */
	u32 srtt_us;      /* smoothed round-trip time (RFC 6298); 0 before the first sample */
	u32 min_rtt_us;   /* least round-trip time of the last minutes; 0 before the first sample */
	struct cc_config config;
};

/* In place of a round-trip time without any queue: the connection's smoothed one (throughput guidance). */
#define CC_RTT_SMOOTHED U32_MOST

/* What NetAssist says about the bottleneck of this connection (see feedback.h, which says when each
 * is 0). */
struct cc_feedback {
	u64 bandwidth;    /* bytes of IP packets per second; 0: nothing that is still valid */
	u32 min_rtt_us;   /* round-trip time without any queue; CC_RTT_SMOOTHED */
	u32 fairness;     /* NATCP's coefficient B in 256ths: 256 times the number of competing flows */
	u32 queue;        /* bytes that all competing flows are to keep in the bottleneck's queue, beside
			     what NATCP has in flight anyway; 0 in the paper */
	u32 pace;         /* 256ths of the bandwidth to send at; 0 is taken as 256, as in the paper */
};

/* An acknowledgement. */
struct cc_sample {
	u32 acked;           /* packets that it delivered, cumulatively or by SACK; for `measure` those
				that it acknowledged cumulatively will do */
	u32 advanced;        /* packets that it acknowledged cumulatively, whether SACKed before or not; for
				`measure` only */
	u32 rtt_us;          /* of the packet sent last among them; 0: none was measured */
	u32 prior_in_flight; /* packets in flight before it */

	/* Delivery rate (draft-cheng-iccrg-delivery-rate-estimation). */
	u32 rate_delivered;  /* packets delivered ... */
	u32 rate_interval_us; /* ... in so long; 0: no sample */
	u32 prior_delivered; /* `delivered` when the packet that gave the sample was sent */
	u32 tx_in_flight;    /* packets in flight when it was sent, itself counted; 0: not known */
	u32 tx_lost;         /* packets held lost since it was sent */

	u8 ece;              /* it carries ECN-Echo (RFC 3168), TCP-ME's congestion warning */
	u8 wla;              /* a base station has marked it: wireless loss alarm (TCP-ME) */
	u8 app_limited;      /* the rate sample was limited by what there was to send */
	u8 cwnd_limited;     /* the window was what limited sending (RFC 7661): it may grow */
	struct cc_feedback feedback;
};

/* Whether the window is below the threshold. */
CC_INLINE int cc_in_slow_start(const struct cc *cc)
{
	return cc->cwnd < cc->ssthresh;
}

/* A window within bounds. */
CC_INLINE u32 cc_window(const struct cc *cc, u64 packets)
{
	u64 most = min32(max32(cc->cwnd_most, 1), CC_CWND_MOST);

	return (u32)min64(max64(packets, 1), most);
}

/* Slow start with byte counting (RFC 5681, section 3.1; RFC 3465 without limit, as acknowledgements
 * come in aggregates). Returns what of `acked` is left over at the threshold. */
CC_INLINE u32 cc_slow_start(struct cc *cc, u32 acked)
{
	u32 step = min32(acked, sub_sat32(cc->ssthresh, cc->cwnd));

	cc->cwnd = cc_window(cc, (u64)cc->cwnd + step);
	return acked - step;
}

/* A packet more for each `per` acknowledged; `credit` holds what has not counted yet. */
CC_INLINE void cc_increase(struct cc *cc, u32 *credit, u32 per, u32 acked)
{
	u32 sum;

	per = max32(per, 1);
	/* Credit collected while a packet was dearer buys one, not several at the new price. */
	if (*credit >= per) {
		*credit = 0;
		cc->cwnd = cc_window(cc, (u64)cc->cwnd + 1);
	}
	sum = add_sat32(*credit, acked);
	cc->cwnd = cc_window(cc, (u64)cc->cwnd + sum / per);
	*credit = sum % per;
}

/* `numerator` / `denominator` of the window, a threshold. */
CC_INLINE u32 cc_fraction(const struct cc *cc, u32 numerator, u32 denominator)
{
	u64 part = (u64)cc->cwnd * numerator / denominator;

	return max32(narrow(part), CC_SSTHRESH_LEAST);
}

/* Rate of `packets` in `interval_us`, bytes per second; 0 if there was no interval. */
CC_INLINE u64 cc_rate(const struct cc *cc, u32 packets, u32 interval_us)
{
	if (!interval_us)
		return 0;
	return mul_div((u64)packets * cc->mss, USEC_PER_SEC, interval_us);
}

/* What Linux holds for the rate of those that name none, bytes per second: twice the window in a round-trip in
 * slow start, 1.2 times after. */
CC_INLINE u64 cc_usual_rate(const struct cc *cc)
{
	u64 rate = cc_rate(cc, cc->cwnd, cc->srtt_us);

	return cc->cwnd < cc->ssthresh / 2 ? mul_sat(rate, 2) : mul_sat(rate, 6) / 5;
}

/* Packets in `rate` x `time_us`, rounded up. */
CC_INLINE u64 cc_bdp(const struct cc *cc, u64 rate, u32 time_us)
{
	u64 bytes = mul_div(rate, time_us, USEC_PER_SEC);
	u32 mss = max32(cc->mss, 1);

	return bytes / mss + (bytes % mss != 0);
}
