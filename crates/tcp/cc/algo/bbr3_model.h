/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BBR version 3: what it knows of the path: bandwidth, round-trip time, loss, aggregation (sections 5.5 and
 * 5.6.4.2 of the draft that bbr3.h names). */
#pragma once

#include "aggregation.h"
#include "cc.h"

/* Gains are in 256ths. */
#define BBR3_ONE 256u
#define BBR3_STARTUP_PACING_GAIN 709u /* 4 ln 2 = 2.77 */
#define BBR3_DRAIN_PACING_GAIN 128u
#define BBR3_CWND_GAIN 512u
#define BBR3_PROBE_UP_CWND_GAIN 576u /* 2.25 */
#define BBR3_PROBE_RTT_CWND_GAIN 128u
#define BBR3_DOWN_PACING_GAIN 230u    /* 0.9 */
#define BBR3_UP_PACING_GAIN 320u      /* 1.25 */
#define BBR3_PACING_MARGIN_PERCENT 1u
#define BBR3_LOSS_THRESH_PERCENT 2u
#define BBR3_BETA_PERCENT 70u
#define BBR3_HEADROOM_PERCENT 15u
#define BBR3_MIN_PIPE_CWND 4u
#define BBR3_MIN_RTT_FILTER_NS (10ull * NSEC_PER_SEC)
#define BBR3_PROBE_RTT_INTERVAL_NS (5ull * NSEC_PER_SEC)
#define BBR3_PROBE_RTT_DURATION_NS (200ull * NSEC_PER_MSEC)
#define BBR3_EXTRA_ACKED_ROUNDS 10u
#define BBR3_STARTUP_FULL_LOSS_COUNT 6u
#define BBR3_INFINITE U32_MOST
/* Marks of how many packets were lost by when, four in a window. */
#define BBR3_MARKS 8u

enum bbr3_state {
	BBR3_STARTUP,
	BBR3_DRAIN,
	BBR3_PROBE_BW_DOWN,
	BBR3_PROBE_BW_CRUISE,
	BBR3_PROBE_BW_REFILL,
	BBR3_PROBE_BW_UP,
	BBR3_PROBE_RTT,
};

enum bbr3_ack_phase {
	BBR3_ACKS_INIT,
	BBR3_ACKS_REFILLING,
	BBR3_ACKS_PROBE_STARTING,
	BBR3_ACKS_PROBE_FEEDBACK,
	BBR3_ACKS_PROBE_STOPPING,
};

struct bbr3_mark {
	u32 delivered;
	u32 lost;
};

struct bbr3 {
	u64 bw_now;              /* MaxBwFilter: greatest in this cycle, bytes per second */
	u64 bw_before;           /* ... and in the one before */
	u64 bw_shortterm;        /* U64_MOST: no bound */
	u64 bw_latest;
	u64 full_bw;
	u64 cycle_stamp_ns;
	u64 bw_probe_wait_ns;
	u64 min_rtt_stamp_ns;
	u64 probe_rtt_min_stamp_ns;
	u64 probe_rtt_done_stamp_ns;
	struct aggregation aggregation;
	u32 state;               /* enum bbr3_state */
	u32 ack_phase;           /* enum bbr3_ack_phase */
	u32 min_rtt_us;          /* 0: none yet */
	u32 probe_rtt_min_us;
	u32 inflight_longterm;
	u32 inflight_shortterm;
	u32 inflight_latest;
	u32 loss_round_delivered;
	u32 next_round_delivered;
	u32 rounds_since_bw_probe;
	u32 probe_up_cnt;
	u32 bw_probe_up_acks;
	u32 bw_probe_up_rounds;
	u32 prior_cwnd;
	u32 lost;                /* at the last acknowledgement */
	u32 losses_in_round;
	u32 app_limited_until;   /* samples of packets sent before so much was delivered do not count */
	u32 timed_out;           /* the window is to be restored when that is over */
	u8 app_limited;          /* `app_limited_until` is in force */
	u8 round_start;
	u8 loss_round_start;
	u8 loss_in_round;
	u8 full_bw_reached;
	u8 full_bw_now;
	u8 full_bw_count;
	u8 bw_probe_samples;
	u8 probe_rtt_round_done;
	u8 probe_rtt_expired;
	u8 idle_restart;
	u8 next_mark;
	struct bbr3_mark marks[BBR3_MARKS];
};

/* A sample with what was worked out of it. */
struct bbr3_sample {
	u64 rate;          /* bytes per second; 0: none */
	u32 delivered;
	u32 prior_delivered;
	u32 tx_in_flight;
	u32 lost;          /* since the packet was sent */
	u32 newly_acked;
	u32 newly_lost;
	u32 rtt_us;
	u8 app_limited;
	u8 cwnd_limited;
};

CC_INLINE u64 bbr3_max_bw(const struct bbr3 *bbr)
{
	return max64(bbr->bw_now, bbr->bw_before);
}

CC_INLINE u64 bbr3_bw(const struct bbr3 *bbr)
{
	return min64(bbr3_max_bw(bbr), bbr->bw_shortterm);
}

CC_INLINE u64 bbr3_gained(u64 value, u32 gain)
{
	return mul_sat(value, gain) / BBR3_ONE;
}

CC_INLINE u64 bbr3_percent(u64 value, u32 percent)
{
	return mul_sat(value, percent) / 100;
}

CC_INLINE int bbr3_probing_bw_cycle(const struct bbr3 *bbr)
{
	return bbr->state >= BBR3_PROBE_BW_DOWN && bbr->state <= BBR3_PROBE_BW_UP;
}

/* Less than 2^32, scrambled from what no peer can choose well (xorshift, multiply). */
CC_INLINE u32 bbr3_random(const struct cc *cc)
{
	u64 x = cc->now_ns ^ ((u64)cc->snd_nxt << 32) ^ cc->delivered;

	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return (u32)(x >> 32);
}

/* Section 5.6.4.2: BBRBDPMultiple and, for the aggregates that a sender makes, BBRQuantizationBudget. */
CC_INLINE u32 bbr3_inflight(const struct bbr3 *bbr, const struct cc *cc, u32 gain)
{
	u64 packets;

	if (!bbr->min_rtt_us)
		return max32(cc->cwnd, BBR3_MIN_PIPE_CWND);
	packets = bbr3_gained(cc_bdp(cc, bbr3_bw(bbr), bbr->min_rtt_us), gain);
	/* Three aggregates of a millisecond each, of at most 64 KiB. */
	packets = add_sat(packets, min64(cc_bdp(cc, bbr3_bw(bbr), 3000),
					 3 * 65536 / max32(cc->mss, 1)));
	packets = max64(packets, BBR3_MIN_PIPE_CWND);
	if (bbr->state == BBR3_PROBE_BW_UP)
		packets = add_sat(packets, 2);
	return (u32)min64(packets, CC_CWND_MOST);
}

CC_INLINE u32 bbr3_bdp(const struct bbr3 *bbr, const struct cc *cc)
{
	if (!bbr->min_rtt_us)
		return cc->cwnd;
	return (u32)min64(cc_bdp(cc, bbr3_bw(bbr), bbr->min_rtt_us), CC_CWND_MOST);
}

CC_INLINE u32 bbr3_target_inflight(const struct bbr3 *bbr, const struct cc *cc)
{
	return min32(bbr3_bdp(bbr, cc), cc->cwnd);
}

/* Section 5.3.3.6: room for others to grow into. */
CC_INLINE u32 bbr3_inflight_with_headroom(const struct bbr3 *bbr)
{
	u32 headroom;

	if (bbr->inflight_longterm == BBR3_INFINITE)
		return BBR3_INFINITE;
	headroom = max32((u32)bbr3_percent(bbr->inflight_longterm, BBR3_HEADROOM_PERCENT), 1);
	return max32(sub_sat32(bbr->inflight_longterm, headroom), BBR3_MIN_PIPE_CWND);
}

/* How many packets were lost since the one was sent that gave the sample: by the last mark before.
 * What was in flight with it has been delivered or lost since. */
CC_INLINE u32 bbr3_loss_of(const struct bbr3 *bbr, const struct cc *cc, u32 prior_delivered)
{
	u32 lost = 0, age = U32_MOST;

	for (u32 i = 0; i < BBR3_MARKS; i++) {
		const struct bbr3_mark *mark = &bbr->marks[i];
		u32 before_it = prior_delivered - mark->delivered;

		if (!before(prior_delivered, mark->delivered) && before_it < age) {
			age = before_it;
			lost = cc->lost - mark->lost;
		}
	}
	return lost;
}

CC_INLINE void bbr3_mark(struct bbr3 *bbr, const struct cc *cc)
{
	struct bbr3_mark *last = &bbr->marks[(bbr->next_mark - 1) % BBR3_MARKS];

	if (cc->delivered - last->delivered < cc->cwnd / 4)
		return;
	bbr->marks[bbr->next_mark % BBR3_MARKS] =
		(struct bbr3_mark){ .delivered = cc->delivered, .lost = cc->lost };
	bbr->next_mark = (u8)((bbr->next_mark + 1) % BBR3_MARKS);
}

CC_INLINE void bbr3_start_round(struct bbr3 *bbr, const struct cc *cc)
{
	bbr->next_round_delivered = cc->delivered;
}

CC_INLINE void bbr3_reset_full_bw(struct bbr3 *bbr)
{
	bbr->full_bw = 0;
	bbr->full_bw_count = 0;
	bbr->full_bw_now = 0;
}

CC_INLINE void bbr3_reset_short_term(struct bbr3 *bbr)
{
	bbr->bw_shortterm = U64_MOST;
	bbr->inflight_shortterm = BBR3_INFINITE;
}

/* Section 5.5.10.3: what the last round says about loss. */
CC_INLINE void bbr3_adapt_lower_bounds(struct bbr3 *bbr, const struct cc *cc)
{
	if (bbr->state == BBR3_STARTUP || bbr->state == BBR3_PROBE_BW_REFILL ||
	    bbr->state == BBR3_PROBE_BW_UP || !bbr->loss_in_round)
		return;
	if (bbr->bw_shortterm == U64_MOST)
		bbr->bw_shortterm = bbr3_max_bw(bbr);
	if (bbr->inflight_shortterm == BBR3_INFINITE)
		bbr->inflight_shortterm = cc->cwnd;
	bbr->bw_shortterm =
		max64(bbr->bw_latest, bbr3_percent(bbr->bw_shortterm, BBR3_BETA_PERCENT));
	bbr->inflight_shortterm =
		max32(bbr->inflight_latest,
		      (u32)bbr3_percent(bbr->inflight_shortterm, BBR3_BETA_PERCENT));
}

/* Sections 5.5.1, 5.5.8 and 5.5.10: rounds, bandwidth, signals of congestion. */
CC_INLINE void bbr3_update_signals(struct bbr3 *bbr, const struct cc *cc,
				   const struct bbr3_sample *rs)
{
	bbr->loss_round_start = 0;
	bbr->round_start = 0;
	if (rs->rate) {
		bbr->bw_latest = max64(bbr->bw_latest, rs->rate);
		bbr->inflight_latest = max32(bbr->inflight_latest, rs->delivered);
		if (!before(rs->prior_delivered, bbr->loss_round_delivered)) {
			bbr->loss_round_delivered = cc->delivered;
			bbr->loss_round_start = 1;
		}
		if (!before(rs->prior_delivered, bbr->next_round_delivered)) {
			bbr3_start_round(bbr, cc);
			bbr->rounds_since_bw_probe = add_sat32(bbr->rounds_since_bw_probe, 1);
			bbr->round_start = 1;
		}
		if (rs->rate >= bbr3_max_bw(bbr) || !rs->app_limited)
			bbr->bw_now = max64(bbr->bw_now, rs->rate);
	}
	if (rs->newly_lost) {
		bbr->loss_in_round = 1;
		bbr->losses_in_round = add_sat32(bbr->losses_in_round, rs->newly_lost);
	}
	if (bbr->loss_round_start)
		bbr3_adapt_lower_bounds(bbr, cc);
}

/* Section 5.5.9. */
CC_INLINE void bbr3_update_aggregation(struct bbr3 *bbr, const struct cc *cc,
				       const struct bbr3_sample *rs)
{
	aggregation_observe(&bbr->aggregation, cc, bbr3_bw(bbr), rs->newly_acked, bbr->round_start,
			    bbr->full_bw_reached ? BBR3_EXTRA_ACKED_ROUNDS / 2 : 1);
}
