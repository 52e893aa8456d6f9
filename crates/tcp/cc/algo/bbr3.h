/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BBR version 3: draft-ietf-ccwg-bbr, with its names and constants. Sections are the draft's.
 *
 * What differs: P.tx_in_flight and P.lost, which the draft keeps for each packet, are worked out where
 * the stack does not say them (`bbr3_loss_of`). The ranges of lost packets that Startup counts are
 * lost packets. Random numbers come from the connection's own. */
#pragma once

#include "bbr3_probe.h"

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
			   aggregation_extra(&bbr->aggregation);
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
	aggregation_begin(&bbr->aggregation, cc);
	bbr->cycle_stamp_ns = cc->now_ns;
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
		aggregation_begin(&bbr->aggregation, cc);
		if (bbr3_probing_bw_cycle(bbr))
			bbr3_set_pacing_rate(bbr, cc, BBR3_ONE);
		else if (bbr->state == BBR3_PROBE_RTT)
			bbr3_check_probe_rtt_done(bbr, cc);
	}
}
