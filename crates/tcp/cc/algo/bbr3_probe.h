/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BBR version 3: how it finds that out: Startup, Drain, the cycle of ProbeBW, ProbeRTT (section 5.3 of the draft
 * that bbr3.h names). */
#pragma once

#include "bbr3_model.h"

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
