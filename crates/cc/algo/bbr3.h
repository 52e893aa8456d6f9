/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BBR version 3: draft-ietf-ccwg-bbr, with its names and constants. Sections are the draft's.
 *
 * What differs: P.tx_in_flight and P.lost, which the draft keeps for each packet, are worked out where
 * the stack does not say them (`bbr3_loss_of`). The ranges of lost packets that Startup counts are
 * lost packets. Random numbers come from the connection's own. */
#pragma once

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
	u64 extra_acked_start_ns;
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
	u32 extra_acked_delivered;
	u32 extra_acked[2];      /* greatest in the present and in the former half of the filter */
	u32 extra_acked_rounds;
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

CC_INLINE void bbr3_start_down(struct bbr3 *bbr, const struct cc *cc)
{
	u32 random = bbr3_random(cc);

	bbr->loss_in_round = 0;
	bbr->bw_latest = 0;
	bbr->inflight_latest = 0;
	bbr->probe_up_cnt = BBR3_INFINITE;
	/* BBRPickProbeWait: 2 to 3 s, and up to a round earlier for Reno's sake. */
	bbr->rounds_since_bw_probe = random & 1;
	bbr->bw_probe_wait_ns = 2ull * NSEC_PER_SEC + (random >> 1) % NSEC_PER_SEC;
	bbr->cycle_stamp_ns = cc->now_ns;
	bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
	bbr3_start_round(bbr, cc);
	bbr->state = BBR3_PROBE_BW_DOWN;
}

CC_INLINE void bbr3_start_refill(struct bbr3 *bbr, const struct cc *cc)
{
	bbr3_reset_short_term(bbr);
	bbr->bw_probe_up_rounds = 0;
	bbr->bw_probe_up_acks = 0;
	bbr->ack_phase = BBR3_ACKS_REFILLING;
	bbr3_start_round(bbr, cc);
	bbr->state = BBR3_PROBE_BW_REFILL;
}

/* BBRRaiseInflightLongtermSlope. */
CC_INLINE void bbr3_raise_slope(struct bbr3 *bbr, const struct cc *cc)
{
	u32 growth = 1u << min32(bbr->bw_probe_up_rounds, 30);

	bbr->bw_probe_up_rounds = min32(bbr->bw_probe_up_rounds + 1, 30);
	bbr->probe_up_cnt = max32(cc->cwnd / growth, 1);
}

CC_INLINE void bbr3_start_up(struct bbr3 *bbr, const struct cc *cc,
			     const struct bbr3_sample *rs)
{
	bbr->ack_phase = BBR3_ACKS_PROBE_STARTING;
	bbr3_start_round(bbr, cc);
	bbr3_reset_full_bw(bbr);
	bbr->full_bw = rs->rate;
	bbr->cycle_stamp_ns = cc->now_ns;
	bbr->state = BBR3_PROBE_BW_UP;
	bbr3_raise_slope(bbr, cc);
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

/* Section 5.5.9: what comes beyond the bandwidth, since acknowledgements come in aggregates. */
CC_INLINE void bbr3_update_aggregation(struct bbr3 *bbr, const struct cc *cc,
				       const struct bbr3_sample *rs)
{
	u64 elapsed_us = sub_sat(cc->now_ns, bbr->extra_acked_start_ns) / NSEC_PER_USEC;
	u64 expected = mul_div(bbr3_bw(bbr), elapsed_us, USEC_PER_SEC) / max32(cc->mss, 1);
	u32 rounds = bbr->full_bw_reached ? BBR3_EXTRA_ACKED_ROUNDS / 2 : 1;
	u32 extra;

	if (bbr->round_start && ++bbr->extra_acked_rounds >= rounds) {
		bbr->extra_acked_rounds = 0;
		bbr->extra_acked[1] = bbr->extra_acked[0];
		bbr->extra_acked[0] = 0;
	}
	if (bbr->extra_acked_delivered <= expected) {
		bbr->extra_acked_delivered = 0;
		bbr->extra_acked_start_ns = cc->now_ns;
		expected = 0;
	}
	bbr->extra_acked_delivered = add_sat32(bbr->extra_acked_delivered, rs->newly_acked);
	extra = narrow(sub_sat(bbr->extra_acked_delivered, expected));
	bbr->extra_acked[0] = max32(bbr->extra_acked[0], min32(extra, cc->cwnd));
}

/* Section 5.3.1.2: bandwidth has not grown by a quarter in three rounds. */
CC_INLINE void bbr3_check_full_bw(struct bbr3 *bbr, const struct bbr3_sample *rs)
{
	if (bbr->full_bw_now || !bbr->round_start || rs->app_limited)
		return;
	if (rs->rate >= bbr3_percent(bbr->full_bw, 125)) {
		bbr3_reset_full_bw(bbr);
		bbr->full_bw = rs->rate;
		return;
	}
	bbr->full_bw_count = (u8)min32(bbr->full_bw_count + 1u, 3);
	bbr->full_bw_now = bbr->full_bw_count >= 3;
	if (bbr->full_bw_now)
		bbr->full_bw_reached = 1;
}

CC_INLINE int bbr3_inflight_too_high(const struct bbr3_sample *rs)
{
	return rs->lost > bbr3_percent(rs->tx_in_flight, BBR3_LOSS_THRESH_PERCENT);
}

/* Section 5.3.1.3. */
CC_INLINE void bbr3_check_startup_loss(struct bbr3 *bbr, const struct cc *cc,
				       const struct bbr3_sample *rs)
{
	if (bbr->full_bw_reached || !bbr->loss_round_start || cc->state != CC_RECOVERY ||
	    bbr->losses_in_round < BBR3_STARTUP_FULL_LOSS_COUNT || !bbr3_inflight_too_high(rs))
		return;
	bbr->full_bw_reached = 1;
	bbr->inflight_longterm = max32(bbr3_bdp(bbr, cc), bbr->inflight_latest);
}

/* Section 5.3.1 - 5.3.2. */
CC_INLINE void bbr3_check_startup_and_drain(struct bbr3 *bbr, const struct cc *cc)
{
	if (bbr->state == BBR3_STARTUP && bbr->full_bw_reached)
		bbr->state = BBR3_DRAIN;
	if (bbr->state == BBR3_DRAIN && cc->in_flight <= bbr3_inflight(bbr, cc, BBR3_ONE))
		bbr3_start_down(bbr, cc);
}

/* BBRHandleInflightTooHigh. */
CC_INLINE void bbr3_handle_inflight_too_high(struct bbr3 *bbr, const struct cc *cc,
					     const struct bbr3_sample *rs)
{
	u32 target = (u32)bbr3_percent(bbr3_target_inflight(bbr, cc), BBR3_BETA_PERCENT);

	bbr->bw_probe_samples = 0;
	if (!rs->app_limited)
		bbr->inflight_longterm = max32(rs->tx_in_flight, target);
	if (bbr->state == BBR3_PROBE_BW_UP)
		bbr3_start_down(bbr, cc);
}

/* BBRProbeInflightLongtermUpward. */
CC_INLINE void bbr3_probe_upward(struct bbr3 *bbr, const struct cc *cc,
				 const struct bbr3_sample *rs)
{
	u32 price = max32(bbr->probe_up_cnt, 1), step;

	if (!rs->cwnd_limited || cc->cwnd < bbr->inflight_longterm)
		return;
	bbr->bw_probe_up_acks = add_sat32(bbr->bw_probe_up_acks, rs->newly_acked);
	if (bbr->bw_probe_up_acks >= price) {
		step = bbr->bw_probe_up_acks / price;
		bbr->bw_probe_up_acks %= price;
		bbr->inflight_longterm =
			min32(add_sat32(bbr->inflight_longterm, step), CC_CWND_MOST);
	}
	if (bbr->round_start)
		bbr3_raise_slope(bbr, cc);
}

/* Section 5.5.10.1: BBRAdaptLongTermModel. */
CC_INLINE void bbr3_adapt_long_term(struct bbr3 *bbr, const struct cc *cc,
				    const struct bbr3_sample *rs)
{
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STARTING && bbr->round_start)
		bbr->ack_phase = BBR3_ACKS_PROBE_FEEDBACK;
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STOPPING && bbr->round_start) {
		bbr->bw_probe_samples = 0;
		bbr->ack_phase = BBR3_ACKS_INIT;
		/* BBRAdvanceMaxBwFilter. */
		if (bbr3_probing_bw_cycle(bbr) && !rs->app_limited && bbr->bw_now) {
			bbr->bw_before = bbr->bw_now;
			bbr->bw_now = 0;
		}
	}
	if (!rs->rate)
		return;
	if (bbr3_inflight_too_high(rs)) {
		if (bbr->bw_probe_samples)
			bbr3_handle_inflight_too_high(bbr, cc, rs);
		return;
	}
	if (bbr->inflight_longterm == BBR3_INFINITE)
		return;
	bbr->inflight_longterm =
		max32(bbr->inflight_longterm, min32(rs->tx_in_flight, CC_CWND_MOST));
	if (bbr->state == BBR3_PROBE_BW_UP)
		bbr3_probe_upward(bbr, cc, rs);
}

/* BBRIsTimeToProbeBW: after the wait, or as many rounds as Reno would need to come back. */
CC_INLINE int bbr3_time_to_probe(const struct bbr3 *bbr, const struct cc *cc)
{
	return sub_sat(cc->now_ns, bbr->cycle_stamp_ns) > bbr->bw_probe_wait_ns ||
	       bbr->rounds_since_bw_probe >= min32(bbr3_target_inflight(bbr, cc), 63);
}

/* Section 5.3.3.7: BBRUpdateProbeBWCyclePhase. */
CC_INLINE void bbr3_update_cycle(struct bbr3 *bbr, const struct cc *cc,
				 const struct bbr3_sample *rs)
{
	if (!bbr->full_bw_reached)
		return;
	bbr3_adapt_long_term(bbr, cc, rs);
	switch (bbr->state) {
	case BBR3_PROBE_BW_DOWN:
		if (bbr3_time_to_probe(bbr, cc))
			bbr3_start_refill(bbr, cc);
		else if (cc->in_flight <= bbr3_inflight_with_headroom(bbr) &&
			 cc->in_flight <= bbr3_inflight(bbr, cc, BBR3_ONE))
			bbr->state = BBR3_PROBE_BW_CRUISE;
		break;
	case BBR3_PROBE_BW_CRUISE:
		if (bbr3_time_to_probe(bbr, cc))
			bbr3_start_refill(bbr, cc);
		break;
	case BBR3_PROBE_BW_REFILL:
		/* A round later what is acknowledged was sent with the pipe full. */
		if (bbr->round_start) {
			bbr->bw_probe_samples = 1;
			bbr3_start_up(bbr, cc, rs);
		}
		break;
	case BBR3_PROBE_BW_UP:
		/* BBRIsTimeToGoDown. */
		if (rs->cwnd_limited && cc->cwnd >= bbr->inflight_longterm) {
			bbr3_reset_full_bw(bbr);
			bbr->full_bw = rs->rate;
		} else if (bbr->full_bw_now) {
			bbr3_start_down(bbr, cc);
		}
		break;
	default:
		break;
	}
}

/* Section 5.3.4.3: BBRUpdateMinRTT. */
CC_INLINE void bbr3_update_min_rtt(struct bbr3 *bbr, const struct cc *cc,
				   const struct bbr3_sample *rs)
{
	bbr->probe_rtt_expired =
		cc->now_ns > add_sat(bbr->probe_rtt_min_stamp_ns, BBR3_PROBE_RTT_INTERVAL_NS);
	if (rs->rtt_us && (!bbr->probe_rtt_min_us || rs->rtt_us < bbr->probe_rtt_min_us ||
			   bbr->probe_rtt_expired)) {
		bbr->probe_rtt_min_us = rs->rtt_us;
		bbr->probe_rtt_min_stamp_ns = cc->now_ns;
	}
	if (bbr->probe_rtt_min_us &&
	    (!bbr->min_rtt_us || bbr->probe_rtt_min_us < bbr->min_rtt_us ||
	     cc->now_ns > add_sat(bbr->min_rtt_stamp_ns, BBR3_MIN_RTT_FILTER_NS))) {
		bbr->min_rtt_us = bbr->probe_rtt_min_us;
		bbr->min_rtt_stamp_ns = bbr->probe_rtt_min_stamp_ns;
	}
}

CC_INLINE u32 bbr3_probe_rtt_cwnd(const struct bbr3 *bbr, const struct cc *cc)
{
	u64 packets = bbr3_gained(bbr3_bdp(bbr, cc), BBR3_PROBE_RTT_CWND_GAIN);

	return max32(narrow(packets), BBR3_MIN_PIPE_CWND);
}

/* BBRCheckProbeRTTDone and BBRExitProbeRTT. */
CC_INLINE void bbr3_check_probe_rtt_done(struct bbr3 *bbr, struct cc *cc)
{
	if (!bbr->probe_rtt_done_stamp_ns || cc->now_ns <= bbr->probe_rtt_done_stamp_ns)
		return;
	bbr->probe_rtt_min_stamp_ns = cc->now_ns;
	cc->cwnd = cc_window(cc, max32(cc->cwnd, bbr->prior_cwnd));
	bbr3_reset_short_term(bbr);
	if (bbr->full_bw_reached) {
		bbr3_start_down(bbr, cc);
		bbr->state = BBR3_PROBE_BW_CRUISE;
	} else {
		bbr->state = BBR3_STARTUP;
	}
}

/* Section 5.3.4.4: BBRCheckProbeRTT. */
CC_INLINE void bbr3_check_probe_rtt(struct bbr3 *bbr, struct cc *cc, const struct bbr3_sample *rs)
{
	if (bbr->state != BBR3_PROBE_RTT && bbr->probe_rtt_expired && !bbr->idle_restart) {
		bbr->prior_cwnd = cc->cwnd;
		bbr->state = BBR3_PROBE_RTT;
		bbr->probe_rtt_done_stamp_ns = 0;
		bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
		bbr3_start_round(bbr, cc);
	}
	if (bbr->state == BBR3_PROBE_RTT) {
		/* MarkConnectionAppLimited: what is sent now is limited by the probe. */
		bbr->app_limited_until = cc->delivered + cc->in_flight;
		bbr->app_limited = 1;
		if (!bbr->probe_rtt_done_stamp_ns &&
		    cc->in_flight <= bbr3_probe_rtt_cwnd(bbr, cc)) {
			bbr->probe_rtt_done_stamp_ns =
				add_sat(cc->now_ns, BBR3_PROBE_RTT_DURATION_NS);
			bbr->probe_rtt_round_done = 0;
			bbr3_start_round(bbr, cc);
		} else if (bbr->probe_rtt_done_stamp_ns) {
			if (bbr->round_start)
				bbr->probe_rtt_round_done = 1;
			if (bbr->probe_rtt_round_done)
				bbr3_check_probe_rtt_done(bbr, cc);
		}
	}
	if (rs->newly_acked)
		bbr->idle_restart = 0;
}

CC_INLINE u32 bbr3_pacing_gain(const struct bbr3 *bbr)
{
	switch (bbr->state) {
	case BBR3_STARTUP:
		return BBR3_STARTUP_PACING_GAIN;
	case BBR3_DRAIN:
		return BBR3_DRAIN_PACING_GAIN;
	case BBR3_PROBE_BW_DOWN:
		return BBR3_DOWN_PACING_GAIN;
	case BBR3_PROBE_BW_UP:
		return BBR3_UP_PACING_GAIN;
	default:
		return BBR3_ONE;
	}
}

/* Section 5.6.2: BBRSetPacingRateWithGain. */
CC_INLINE void bbr3_set_pacing_rate(const struct bbr3 *bbr, struct cc *cc, u32 gain)
{
	u64 rate = bbr3_gained(bbr3_bw(bbr), gain);

	rate = bbr3_percent(rate, 100 - BBR3_PACING_MARGIN_PERCENT);
	if (rate && (bbr->full_bw_reached || rate > cc->pacing_rate))
		cc->pacing_rate = rate;
}

/* Section 5.6.4.6: BBRSetCwnd, and the bounds of 5.6.4.5 and 5.6.4.7. */
CC_INLINE void bbr3_set_cwnd(const struct bbr3 *bbr, struct cc *cc, const struct bbr3_sample *rs)
{
	u32 gain = bbr->state == BBR3_PROBE_BW_UP ? BBR3_PROBE_UP_CWND_GAIN : BBR3_CWND_GAIN;
	u64 max_inflight = (u64)bbr3_inflight(bbr, cc, gain) +
			   max32(bbr->extra_acked[0], bbr->extra_acked[1]);
	u64 cwnd = (u64)cc->cwnd + rs->newly_acked;
	u32 cap = BBR3_INFINITE;

	if (bbr->full_bw_reached)
		cwnd = min64(cwnd, max_inflight);
	else if (cc->cwnd >= max_inflight && cc->delivered >= 10)
		cwnd = cc->cwnd;
	cwnd = max64(cwnd, BBR3_MIN_PIPE_CWND);
	if (bbr->state == BBR3_PROBE_RTT)
		cwnd = min64(cwnd, bbr3_probe_rtt_cwnd(bbr, cc));
	if (bbr->state == BBR3_PROBE_RTT || bbr->state == BBR3_PROBE_BW_CRUISE)
		cap = bbr3_inflight_with_headroom(bbr);
	else if (bbr3_probing_bw_cycle(bbr))
		cap = bbr->inflight_longterm;
	cap = max32(min32(cap, bbr->inflight_shortterm), BBR3_MIN_PIPE_CWND);
	cc->cwnd = cc_window(cc, min64(cwnd, cap));
}

CC_INLINE struct bbr3_sample bbr3_sample(struct bbr3 *bbr, const struct cc *cc,
					 const struct cc_sample *sample)
{
	struct bbr3_sample rs = {
		.rate = cc_rate(cc, sample->rate_delivered, sample->rate_interval_us),
		.delivered = sample->rate_delivered,
		.prior_delivered = sample->prior_delivered,
		.tx_in_flight = sample->tx_in_flight,
		.lost = sample->tx_lost,
		.newly_acked = sample->acked,
		.newly_lost = cc->lost - bbr->lost,
		.rtt_us = sample->rtt_us,
		.app_limited = sample->app_limited,
		.cwnd_limited = sample->cwnd_limited,
	};

	bbr->lost = cc->lost;
	if (!rs.tx_in_flight) {
		rs.lost = bbr3_loss_of(bbr, cc, rs.prior_delivered);
		rs.tx_in_flight = add_sat32(rs.delivered, rs.lost);
	}
	if (bbr->app_limited) {
		if (before(rs.prior_delivered, bbr->app_limited_until))
			rs.app_limited = 1;
		else
			bbr->app_limited = 0;
	}
	return rs;
}

/* Section 5.2.1: BBROnInit. */
CC_INLINE void bbr3_init(struct bbr3 *bbr, struct cc *cc)
{
	u32 rtt_us = cc->srtt_us ? cc->srtt_us : 1000;

	bbr->state = BBR3_STARTUP;
	bbr->min_rtt_us = bbr->probe_rtt_min_us = cc->srtt_us;
	bbr->min_rtt_stamp_ns = bbr->probe_rtt_min_stamp_ns = cc->now_ns;
	bbr->extra_acked_start_ns = bbr->cycle_stamp_ns = cc->now_ns;
	bbr->inflight_longterm = BBR3_INFINITE;
	bbr->probe_up_cnt = BBR3_INFINITE;
	bbr->lost = cc->lost;
	bbr->next_round_delivered = bbr->loss_round_delivered = cc->delivered;
	bbr3_reset_short_term(bbr);
	for (u32 i = 0; i < BBR3_MARKS; i++)
		bbr->marks[i] = (struct bbr3_mark){ .delivered = cc->delivered, .lost = cc->lost };
	cc->pacing_rate = bbr3_gained(cc_rate(cc, cc->cwnd, rtt_us), BBR3_STARTUP_PACING_GAIN);
	cc->pacing_rate = max64(cc->pacing_rate, 1);
}

/* Section 5.2.3: BBRUpdateModelAndState and BBRUpdateControlParameters. */
CC_INLINE void bbr3_control(struct bbr3 *bbr, struct cc *cc, const struct cc_sample *sample)
{
	struct bbr3_sample rs = bbr3_sample(bbr, cc, sample);

	bbr3_update_signals(bbr, cc, &rs);
	bbr3_update_aggregation(bbr, cc, &rs);
	bbr3_check_full_bw(bbr, &rs);
	bbr3_check_startup_loss(bbr, cc, &rs);
	bbr3_check_startup_and_drain(bbr, cc);
	bbr3_update_cycle(bbr, cc, &rs);
	bbr3_update_min_rtt(bbr, cc, &rs);
	bbr3_check_probe_rtt(bbr, cc, &rs);
	if (bbr->loss_round_start) {
		/* BBRAdvanceLatestDeliverySignals; the round's losses have had their effect. */
		bbr->bw_latest = rs.rate;
		bbr->inflight_latest = rs.delivered;
		bbr->loss_in_round = 0;
		bbr->losses_in_round = 0;
	}
	bbr3_mark(bbr, cc);
	bbr3_set_pacing_rate(bbr, cc, bbr3_pacing_gain(bbr));
	bbr3_set_cwnd(bbr, cc, &rs);
}

/* Loss takes effect through the model: the threshold is left alone. */
CC_INLINE u32 bbr3_ssthresh(struct bbr3 *bbr, struct cc *cc)
{
	if (bbr->state != BBR3_PROBE_RTT && cc->state < CC_RECOVERY)
		bbr->prior_cwnd = cc->cwnd;
	else
		bbr->prior_cwnd = max32(bbr->prior_cwnd, cc->cwnd);
	return max32(cc->ssthresh, CC_SSTHRESH_LEAST);
}

/* A loss that was none says nothing about the path. */
CC_INLINE u32 bbr3_undo(struct bbr3 *bbr, struct cc *cc)
{
	bbr3_reset_full_bw(bbr);
	bbr->loss_in_round = 0;
	bbr3_reset_short_term(bbr);
	return max32(cc->cwnd, bbr->prior_cwnd);
}

CC_INLINE void bbr3_event(struct bbr3 *bbr, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && cc->state == CC_LOSS) {
		/* Section 5.6.4.4: the stack begins with one packet. */
		bbr->timed_out = 1;
		bbr3_reset_full_bw(bbr);
	} else if (event == CC_STATE && cc->state < CC_CWR && bbr->timed_out) {
		bbr->timed_out = 0;
		cc->cwnd = cc_window(cc, max32(cc->cwnd, bbr->prior_cwnd));
	} else if (event == CC_TX_START || event == CC_CWND_RESTART) {
		/* Section 5.4.1: BBRHandleRestartFromIdle. */
		bbr->idle_restart = 1;
		bbr->extra_acked_start_ns = cc->now_ns;
		if (bbr3_probing_bw_cycle(bbr))
			bbr3_set_pacing_rate(bbr, cc, BBR3_ONE);
		else if (bbr->state == BBR3_PROBE_RTT)
			bbr3_check_probe_rtt_done(bbr, cc);
	}
}
