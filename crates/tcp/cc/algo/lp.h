/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* TCP-LP: Kuzmanovic, Knightly, "TCP-LP: a distributed algorithm for low priority data transfer",
 * INFOCOM 2003, with its names. It gives way to everybody else, by inferring their packets from delay.
 *
 * The paper takes the one-way delay from the peer's timestamps. Those echo the first packet that an
 * acknowledgement was delayed for (RFC 7323, section 4.3), and at small windows its delay would pass for a
 * queue. Here it is the round-trip time of the last one, the same wherever the way back has no queue, and
 * only of acknowledgements for more than one packet: one for a single packet may have waited for another. */
#pragma once

#include "reno.h"

/* Section III.C: gamma = 1/8; delta = 0.15 of the span between least and greatest delay; and an
 * inference phase of three round-trips. */
#define LP_SMOOTHING 8u
#define LP_DELTA_PERCENT 15u
#define LP_INFERENCE_RTTS 3u
/* So little is no queue to give way to: what a well-kept queue holds anyway (RFC 8289, section 4.4). The
 * paper's threshold alone is a part of the sender's own bursts, and of hosts' waits for their processors, for as
 * long as no real queue was seen; with Linux's timestamps, which count milliseconds and begin anywhere, an
 * indication is rare. A path whose queue never holds more is shared as Reno does. */
#define LP_QUEUE_US 5000u

struct lp {
	struct reno reno;
	u64 inference_end_ns; /* until then the window does not grow */
	u32 smoothed_us;      /* sd: smoothed delay; 0: none yet */
	u32 min_us;           /* d_min */
	u32 max_us;           /* d_max */
	u32 told_us;          /* sd at the last indication */
	u32 fresh;            /* sd has changed since the window was decided on last */
};

/* Section III.B: early congestion indication, if sd > d_min + (d_max - d_min) delta. */
CC_INLINE int lp_congested(const struct lp *lp)
{
	u64 part = (u64)(lp->max_us - lp->min_us) * LP_DELTA_PERCENT / 100;

	return lp->smoothed_us > lp->min_us + max64(part, LP_QUEUE_US);
}

CC_INLINE void lp_measure(struct lp *lp, struct cc *cc, const struct cc_sample *sample)
{
	u32 delay = sample->rtt_us;

	if (!delay || sample->acked < 2)
		return;
	if (!lp->smoothed_us) {
		lp->smoothed_us = lp->min_us = lp->max_us = delay;
		return;
	}
	lp->fresh = 1;
	lp->min_us = min32(lp->min_us, delay);
	lp->max_us = max32(lp->max_us, delay);
	lp->smoothed_us = lp->smoothed_us - lp->smoothed_us / LP_SMOOTHING + delay / LP_SMOOTHING;
}

/* Once more in the inference phase: the delay has risen although the window was halved, so others are there for
 * sure. Not in the same round-trip, whose packets were sent before. And as sd only follows, it stands above the
 * threshold for a while in any case: what counts is a rise beyond where it was, from which Linux begins its
 * range anew. */
CC_INLINE int lp_risen(const struct lp *lp, const struct cc *cc)
{
	u64 rtt_ns = (u64)cc->srtt_us * NSEC_PER_USEC;

	return sub_sat(lp->inference_end_ns, cc->now_ns) <= rtt_ns * (LP_INFERENCE_RTTS - 1) &&
	       lp->smoothed_us > lp->told_us + (u64)lp->told_us * LP_DELTA_PERCENT / 100;
}

/* Section III.C, figure 2. Least and greatest delay are learnt in slow start, and used after it. */
CC_INLINE void lp_grow(struct lp *lp, struct cc *cc, const struct cc_sample *sample)
{
	int inferring = cc->now_ns < lp->inference_end_ns, fresh = lp->fresh;

	lp->fresh = 0;
	if (fresh && cc->ssthresh < CC_SSTHRESH_INFINITE && lp_congested(lp) &&
	    (!inferring || lp_risen(lp, cc))) {
		cc->cwnd = cc_window(cc, inferring ? 1 : cc->cwnd / 2);
		/* Nor is it slow start from there. */
		cc->ssthresh = min32(cc->ssthresh, max32(cc->cwnd, CC_SSTHRESH_LEAST));
		lp->told_us = lp->smoothed_us;
		lp->inference_end_ns = add_sat(
			cc->now_ns, (u64)cc->srtt_us * LP_INFERENCE_RTTS * NSEC_PER_USEC);
		return;
	}
	if (!inferring)
		reno_grow(&lp->reno, cc, sample);
}

CC_INLINE u32 lp_ssthresh(struct lp *lp, struct cc *cc)
{
	return reno_ssthresh(&lp->reno, cc);
}

CC_INLINE u32 lp_undo(struct lp *lp, struct cc *cc)
{
	return reno_undo(&lp->reno, cc);
}
