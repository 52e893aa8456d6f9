/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BBR version 1: draft-cardwell-iccrg-bbr-congestion-control-00, with its names. Sections are the
 * draft's. With room in the window for aggregated acknowledgements, as version 3's draft has it and Linux's version 1
 * too. Without its long-term bandwidth sampling, which only policers that drop a fifth set off. */
#pragma once

#include "aggregation.h"
#include "best.h"
#include "cc.h"

/* Gains are in 256ths. Section 4.3.2: 2 / ln 2; 4.3.3: its inverse. */
#define BBR_ONE 256u
#define BBR_HIGH_GAIN 739u
#define BBR_DRAIN_GAIN 88u
#define BBR_CWND_GAIN 512u
#define BBR_CYCLE_LENGTH 8u
/* Sections 4.1.1.3, 4.1.2.3, 4.3.5. */
#define BBR_BW_ROUNDS 10u
#define BBR_MIN_RTT_NS (10ull * NSEC_PER_SEC)
#define BBR_PROBE_RTT_NS (200ull * NSEC_PER_MSEC)
#define BBR_MIN_PIPE_CWND 4u
/* Section 4.3.2.1: the pipe is full when the bandwidth has not grown by a quarter in three rounds. */
#define BBR_FULL_BW_ROUNDS 3u
/* Half of the rounds that the greatest aggregate is remembered for, and the longest time that the window makes up for,
 * microseconds. */
#define BBR_EXTRA_ACKED_ROUNDS 5u
#define BBR_EXTRA_ACKED_US 100000u
/* Pacing stays a per cent below the estimate, to drain what queue there is (draft-02, section 4.6.2). */
#define BBR_MARGIN_PERCENT 1u

enum bbr_state {
	BBR_STARTUP,
	BBR_DRAIN,
	BBR_PROBE_BW,
	BBR_PROBE_RTT,
};

struct bbr {
	struct best best;        /* of the bandwidth, bytes per second */
	struct aggregation aggregation;
	u64 full_bw;
	u64 cycle_stamp_ns;
	u64 min_rtt_stamp_ns;
	u64 probe_rtt_done_ns;   /* 0: the window is not yet down */
	u32 state;               /* enum bbr_state */
	u32 min_rtt_us;          /* 0: none yet */
	u32 round;
	u32 next_round_delivered;
	u32 prior_cwnd;
	u32 narrow_from;         /* `delivered` when the last ProbeRTT began */
	u32 narrow_to;           /* `delivered` when all that was sent in it is */
	u32 lost;                /* at the last acknowledgement */
	u32 prev_state;          /* enum cc_state at the last acknowledgement */
	u8 cycle;
	u8 full_bw_count;
	u8 filled_pipe;
	u8 round_start;
	u8 packet_conservation;
	u8 probe_rtt_round_done;
	u8 idle_restart;
	u8 as_of_2016;           /* without room for aggregated acknowledgements */
};

CC_INLINE u64 bbr_gained(u64 value, u32 gain)
{
	return mul_sat(value, gain) / BBR_ONE;
}

CC_INLINE u64 bbr_max_bw(const struct bbr *bbr)
{
	return best_value(&bbr->best);
}

CC_INLINE u32 bbr_pacing_gain(const struct bbr *bbr)
{
	switch (bbr->state) {
	case BBR_STARTUP:
		return BBR_HIGH_GAIN;
	case BBR_DRAIN:
		return BBR_DRAIN_GAIN;
	case BBR_PROBE_BW:
		/* Section 4.3.4.1: 5/4, 3/4, then 1. */
		return bbr->cycle == 0 ? 320 : bbr->cycle == 1 ? 192 : BBR_ONE;
	default:
		return BBR_ONE;
	}
}

/* Section 4.2.3.2: what `gain` keeps in flight. */
CC_INLINE u32 bbr_inflight(const struct bbr *bbr, const struct cc *cc, u32 gain)
{
	if (!bbr->min_rtt_us)
		return 10;
	return narrow(bbr_gained(cc_bdp(cc, bbr_max_bw(bbr), bbr->min_rtt_us), gain));
}

/* Packets acknowledged together that are made up for, once the bandwidth is known. */
CC_INLINE u32 bbr_extra_acked(const struct bbr *bbr, const struct cc *cc)
{
	if (!bbr->filled_pipe || bbr->as_of_2016)
		return 0;
	return narrow(min64(aggregation_extra(&bbr->aggregation),
			    cc_bdp(cc, bbr_max_bw(bbr), BBR_EXTRA_ACKED_US)));
}

/* The same with room for three bursts of a sender's and for aggregated acknowledgements. */
CC_INLINE u32 bbr_target(const struct bbr *bbr, const struct cc *cc, u32 gain)
{
	u64 quantum = cc_bdp(cc, min64(cc->pacing_rate, bbr_max_bw(bbr)), 1000), target;

	quantum = max64(min64(quantum, 65536 / max32(cc->mss, 1)), 2);
	target = add_sat(bbr_inflight(bbr, cc, gain), bbr_extra_acked(bbr, cc) + 3 * quantum);
	if (bbr->state == BBR_PROBE_BW && bbr->cycle == 0)
		target = add_sat(target, 2);
	return narrow(target);
}

CC_INLINE void bbr_save_cwnd(struct bbr *bbr, const struct cc *cc)
{
	if (bbr->prev_state < CC_RECOVERY && bbr->state != BBR_PROBE_RTT)
		bbr->prior_cwnd = cc->cwnd;
	else
		bbr->prior_cwnd = max32(bbr->prior_cwnd, cc->cwnd);
}

CC_INLINE void bbr_next_cycle(struct bbr *bbr, const struct cc *cc)
{
	bbr->cycle = (u8)((bbr->cycle + 1u) % BBR_CYCLE_LENGTH);
	bbr->cycle_stamp_ns = cc->now_ns;
}

CC_INLINE void bbr_probe_bw(struct bbr *bbr, const struct cc *cc)
{
	u64 draw = (cc->now_ns ^ ((u64)cc->snd_nxt << 32)) * 0xff51afd7ed558ccdull;

	bbr->state = BBR_PROBE_BW;
	/* Section 4.3.4.3: at any phase but the one below 1. */
	bbr->cycle = (u8)((draw >> 33) % (BBR_CYCLE_LENGTH - 1));
	bbr->cycle = (u8)(bbr->cycle == 0 ? 0 : bbr->cycle + 1);
	bbr->cycle_stamp_ns = cc->now_ns;
}

CC_INLINE void bbr_leave_probe_rtt(struct bbr *bbr, const struct cc *cc)
{
	if (bbr->filled_pipe)
		bbr_probe_bw(bbr, cc);
	else
		bbr->state = BBR_STARTUP;
}

/* Section 4.3.5: what was sent in ProbeRTT says no more of the bandwidth than what the application limits. */
CC_INLINE int bbr_is_limited(const struct bbr *bbr, const struct cc_sample *sample)
{
	u32 sent = sample->prior_delivered;

	return sample->app_limited || (bbr->narrow_to != bbr->narrow_from &&
				       !before(sent, bbr->narrow_from) && before(sent, bbr->narrow_to));
}

/* Sections 4.1.1.2 to 4.1.1.4. */
CC_INLINE void bbr_update_bw(struct bbr *bbr, const struct cc *cc, const struct cc_sample *sample)
{
	u64 bw = cc_rate(cc, sample->rate_delivered, sample->rate_interval_us);

	bbr->round_start = 0;
	if (!sample->rate_interval_us)
		return;
	if (!before(sample->prior_delivered, bbr->next_round_delivered)) {
		bbr->next_round_delivered = cc->delivered;
		bbr->round++;
		bbr->round_start = 1;
		bbr->packet_conservation = 0;
	}
	if (!bbr_is_limited(bbr, sample) || bw >= bbr_max_bw(bbr))
		best_observe(&bbr->best, bw, bbr->round, BBR_BW_ROUNDS);
}

/* Section 4.3.4.4. */
CC_INLINE void bbr_cycle_phase(struct bbr *bbr, const struct cc *cc, const struct cc_sample *sample,
			       u32 lost)
{
	u64 since = sub_sat(cc->now_ns, bbr->cycle_stamp_ns);
	int full = since > (u64)bbr->min_rtt_us * NSEC_PER_USEC;
	u32 gain = bbr_pacing_gain(bbr), inflight = sample->prior_in_flight;

	if (bbr->state != BBR_PROBE_BW)
		return;
	if (gain > BBR_ONE)
		full = full && (lost || inflight >= bbr_inflight(bbr, cc, gain));
	else if (gain < BBR_ONE)
		full = full || inflight <= bbr_inflight(bbr, cc, BBR_ONE);
	if (full)
		bbr_next_cycle(bbr, cc);
}

/* Sections 4.3.2.1 and 4.3.3. */
CC_INLINE void bbr_check_pipe(struct bbr *bbr, const struct cc *cc, const struct cc_sample *sample)
{
	u64 bw = bbr_max_bw(bbr);

	if (!bbr->filled_pipe && bbr->round_start && !bbr_is_limited(bbr, sample)) {
		if (bw >= bbr->full_bw + bbr->full_bw / 4) {
			bbr->full_bw = bw;
			bbr->full_bw_count = 0;
		} else if (++bbr->full_bw_count >= BBR_FULL_BW_ROUNDS) {
			bbr->filled_pipe = 1;
		}
	}
	if (bbr->state == BBR_STARTUP && bbr->filled_pipe)
		bbr->state = BBR_DRAIN;
	if (bbr->state == BBR_DRAIN && cc->in_flight <= bbr_inflight(bbr, cc, BBR_ONE))
		bbr_probe_bw(bbr, cc);
}

/* Sections 4.1.2.3 and 4.3.5. */
CC_INLINE void bbr_update_min_rtt(struct bbr *bbr, struct cc *cc, const struct cc_sample *sample)
{
	int expired = sub_sat(cc->now_ns, bbr->min_rtt_stamp_ns) > BBR_MIN_RTT_NS;

	if (sample->rtt_us &&
	    (!bbr->min_rtt_us || sample->rtt_us <= bbr->min_rtt_us || expired)) {
		bbr->min_rtt_us = sample->rtt_us;
		bbr->min_rtt_stamp_ns = cc->now_ns;
	}
	if (expired && !bbr->idle_restart && bbr->state != BBR_PROBE_RTT) {
		bbr_save_cwnd(bbr, cc);
		bbr->state = BBR_PROBE_RTT;
		bbr->probe_rtt_done_ns = 0;
		bbr->narrow_from = cc->delivered;
	}
	if (bbr->state != BBR_PROBE_RTT)
		return;
	bbr->narrow_to = cc->delivered + cc->in_flight;
	if (!bbr->probe_rtt_done_ns) {
		if (cc->in_flight <= BBR_MIN_PIPE_CWND) {
			bbr->probe_rtt_done_ns = add_sat(cc->now_ns, BBR_PROBE_RTT_NS);
			bbr->probe_rtt_round_done = 0;
			bbr->next_round_delivered = cc->delivered;
		}
		return;
	}
	bbr->probe_rtt_round_done |= bbr->round_start;
	if (bbr->probe_rtt_round_done && cc->now_ns > bbr->probe_rtt_done_ns) {
		bbr->min_rtt_stamp_ns = cc->now_ns;
		cc->cwnd = cc_window(cc, max32(cc->cwnd, bbr->prior_cwnd));
		bbr_leave_probe_rtt(bbr, cc);
	}
}

/* Section 4.2.1. */
CC_INLINE void bbr_set_pacing_rate(struct bbr *bbr, struct cc *cc)
{
	u64 bw = bbr_max_bw(bbr), rate;

	if (!bw)
		return;
	rate = bbr_gained(bw, bbr_pacing_gain(bbr));
	rate -= rate * BBR_MARGIN_PERCENT / 100;
	if (bbr->filled_pipe || rate > cc->pacing_rate)
		cc->pacing_rate = max64(rate, 1);
}

/* Section 4.2.3.4: one packet for each delivered in the first round of a recovery. Whether that has
 * decided. */
CC_INLINE int bbr_in_recovery(struct bbr *bbr, struct cc *cc, u32 acked, u32 lost)
{
	u32 prev = bbr->prev_state, state = cc->state;

	if (lost)
		cc->cwnd = cc_window(cc, sub_sat32(cc->cwnd, lost));
	bbr->prev_state = state;
	if (state == CC_RECOVERY && prev != CC_RECOVERY) {
		bbr->packet_conservation = 1;
		bbr->next_round_delivered = cc->delivered;
		cc->cwnd = cc_window(cc, (u64)cc->in_flight + acked);
	} else if (prev >= CC_RECOVERY && state < CC_RECOVERY) {
		cc->cwnd = cc_window(cc, max32(cc->cwnd, bbr->prior_cwnd));
		bbr->packet_conservation = 0;
	}
	if (bbr->packet_conservation)
		cc->cwnd = cc_window(cc, max64(cc->cwnd, (u64)cc->in_flight + acked));
	return bbr->packet_conservation;
}

/* Section 4.2.3. */
CC_INLINE void bbr_set_cwnd(struct bbr *bbr, struct cc *cc, u32 acked, u32 lost)
{
	u32 gain = bbr->state == BBR_STARTUP || bbr->state == BBR_DRAIN ? BBR_HIGH_GAIN
								       : BBR_CWND_GAIN;
	u32 target = bbr_target(bbr, cc, gain);

	if (acked && !bbr_in_recovery(bbr, cc, acked, lost)) {
		if (bbr->filled_pipe)
			cc->cwnd = cc_window(cc, min64((u64)cc->cwnd + acked, target));
		else if (cc->cwnd < target || cc->delivered < 10)
			cc->cwnd = cc_window(cc, (u64)cc->cwnd + acked);
		cc->cwnd = cc_window(cc, max32(cc->cwnd, BBR_MIN_PIPE_CWND));
	}
	if (bbr->state == BBR_PROBE_RTT)
		cc->cwnd = cc_window(cc, min32(cc->cwnd, BBR_MIN_PIPE_CWND));
}

CC_INLINE void bbr_init(struct bbr *bbr, struct cc *cc)
{
	u32 srtt_us = cc->srtt_us ? cc->srtt_us : 1000;

	bbr->min_rtt_us = cc->min_rtt_us;
	bbr->min_rtt_stamp_ns = cc->now_ns;
	bbr->next_round_delivered = cc->delivered;
	bbr->lost = cc->lost;
	aggregation_begin(&bbr->aggregation, cc);
	/* Section 4.2.1: the initial window over the round-trip time. */
	cc->pacing_rate = max64(bbr_gained(cc_rate(cc, cc->cwnd, srtt_us), BBR_HIGH_GAIN), 1);
}

/* BBR as it was published (ACM Queue, 2016) and in Linux from 4.9 to 5.0: what papers of those years measured. */
CC_INLINE void bbr_2016_init(struct bbr *bbr, struct cc *cc)
{
	bbr_init(bbr, cc);
	bbr->as_of_2016 = 1;
}

CC_INLINE void bbr_control(struct bbr *bbr, struct cc *cc, const struct cc_sample *sample)
{
	u32 lost = cc->lost - bbr->lost;

	bbr->lost = cc->lost;
	bbr_update_bw(bbr, cc, sample);
	aggregation_observe(&bbr->aggregation, cc, bbr_max_bw(bbr), sample->acked, bbr->round_start,
			    BBR_EXTRA_ACKED_ROUNDS);
	bbr_cycle_phase(bbr, cc, sample, lost);
	bbr_check_pipe(bbr, cc, sample);
	bbr_update_min_rtt(bbr, cc, sample);
	bbr->idle_restart = 0;
	bbr_set_pacing_rate(bbr, cc);
	bbr_set_cwnd(bbr, cc, sample->acked, lost);
}

/* BBR has no threshold. The window is kept for when the recovery is over. */
CC_INLINE u32 bbr_ssthresh(struct bbr *bbr, struct cc *cc)
{
	bbr_save_cwnd(bbr, cc);
	return max32(cc->ssthresh, CC_SSTHRESH_LEAST);
}

CC_INLINE u32 bbr_undo(struct bbr *bbr, struct cc *cc)
{
	bbr->full_bw = 0;
	bbr->full_bw_count = 0;
	return cc->cwnd;
}

CC_INLINE void bbr_event(struct bbr *bbr, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && cc->state == CC_LOSS) {
		/* A timeout ends the round. */
		bbr->prev_state = CC_LOSS;
		bbr->full_bw = 0;
		bbr->round_start = 1;
	} else if (event == CC_TX_START || event == CC_CWND_RESTART) {
		/* Section 4.3.4.4: not faster than the estimate after a pause. */
		bbr->idle_restart = 1;
		aggregation_begin(&bbr->aggregation, cc);
		if (bbr->state == BBR_PROBE_BW && bbr_max_bw(bbr))
			cc->pacing_rate = bbr_max_bw(bbr);
	}
}
