/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reno with NewReno's recovery: RFC 5681, RFC 6582. Recovery itself is the stack's. */
#pragma once

#include "cc.h"

struct reno {
	u32 credit;     /* packets acknowledged towards the next increment */
	u32 prior_cwnd; /* before the last reduction */
};

/* Section 3.1: a packet per packet below the threshold, above it a packet per window. */
CC_INLINE void reno_grow(struct reno *reno, struct cc *cc, const struct cc_sample *sample)
{
	u32 acked = sample->acked;

	if (!sample->cwnd_limited)
		return;
	if (cc_in_slow_start(cc))
		acked = cc_slow_start(cc, acked);
	if (acked)
		cc_increase(cc, &reno->credit, cc->cwnd, acked);
}

/* Equation 4: half. Of the window, as Linux does and RFC 9438 says, and not of what is in flight:
 * a window that is not used does not grow (RFC 7661). */
CC_INLINE u32 reno_ssthresh(struct reno *reno, struct cc *cc)
{
	reno->prior_cwnd = cc->cwnd;
	reno->credit = 0;
	return cc_fraction(cc, 1, 2);
}

CC_INLINE u32 reno_undo(struct reno *reno, struct cc *cc)
{
	return max32(cc->cwnd, reno->prior_cwnd);
}
