/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Westwood+: Grieco, Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and Vegas
 * TCP congestion control", ACM CCR 34(2), 2004; Mascolo and others, "TCP Westwood: bandwidth estimation
 * for enhanced transport over wireless links", MobiCom 2001. Grows as Reno; on loss the window becomes
 * what the path was seen to carry, and not half of what it was. */
#pragma once

#include "reno.h"

/* Bandwidth is measured over a round-trip, but never over less than this: the samples of a short path
 * are noise. */
#define WESTWOOD_INTERVAL_LEAST_US 50000u
/* RTTmin is counted in ticks of such a length, and a part of one as a whole: as in Linux where it counts
 * 250 a second, whose curves are the yardstick here. It is what makes the window after a loss a little
 * more than was seen to get through, without which Westwood+ would never win back what it lost. */
#define WESTWOOD_TICK_US 4000u
/* The low-pass filter keeps 7/8 of its value at each sample. */
#define WESTWOOD_FILTER 8u

struct westwood {
	struct reno reno;
	u64 since_ns;          /* when the sample under way began; 0: none has */
	u64 filtered;          /* samples after the first filter, bytes per second */
	u64 bandwidth;         /* and after the second: BWE */
	u32 delivered;         /* packets delivered when it began */
	u32 rtt_us;            /* last round-trip time */
	u32 rtt_min_us;        /* least round-trip time since the last timeout: RTTmin */
	u32 forget_rtt;        /* the next round-trip time is the least: the path may be another */
};

CC_INLINE u64 westwood_filter(u64 value, u64 sample)
{
	return (mul_sat(value, WESTWOOD_FILTER - 1) / WESTWOOD_FILTER) + sample / WESTWOOD_FILTER;
}

/* Westwood+, section 2: a sample of d_k / T_k once in a round-trip time, filtered. Two filters stand
 * in series, as where it is in use. */
CC_INLINE void westwood_estimate(struct westwood *westwood, const struct cc *cc)
{
	u64 elapsed_us = sub_sat(cc->now_ns, westwood->since_ns) / NSEC_PER_USEC;
	u64 sample;

	if (!westwood->since_ns) {
		westwood->since_ns = max64(cc->now_ns, 1);
		westwood->delivered = cc->delivered;
		return;
	}
	if (!westwood->rtt_us ||
	    elapsed_us <= max32(westwood->rtt_us, WESTWOOD_INTERVAL_LEAST_US))
		return;
	sample = cc_rate(cc, cc->delivered - westwood->delivered, narrow(elapsed_us));
	if (!westwood->bandwidth && !westwood->filtered) {
		westwood->filtered = westwood->bandwidth = sample;
	} else {
		westwood->filtered = westwood_filter(westwood->filtered, sample);
		westwood->bandwidth = westwood_filter(westwood->bandwidth, westwood->filtered);
	}
	westwood->since_ns = max64(cc->now_ns, 1);
	westwood->delivered = cc->delivered;
}

CC_INLINE void westwood_measure(struct westwood *westwood, struct cc *cc,
				const struct cc_sample *sample)
{
	if (sample->rtt_us) {
		westwood->rtt_us = sample->rtt_us;
		if (!westwood->rtt_min_us || westwood->forget_rtt)
			westwood->rtt_min_us = sample->rtt_us;
		westwood->rtt_min_us = min32(westwood->rtt_min_us, sample->rtt_us);
		westwood->forget_rtt = 0;
	}
	westwood_estimate(westwood, cc);
}

CC_INLINE void westwood_grow(struct westwood *westwood, struct cc *cc,
			     const struct cc_sample *sample)
{
	reno_grow(&westwood->reno, cc, sample);
}

CC_INLINE u64 westwood_rtt_min_us(const struct westwood *westwood)
{
	u64 ticks = ((u64)westwood->rtt_min_us + WESTWOOD_TICK_US - 1) / WESTWOOD_TICK_US;

	return ticks * WESTWOOD_TICK_US;
}

/* Westwood+, figure 1: ssthresh = max(2, BWE x RTTmin / seg_size). Before anything was measured, half
 * as Reno. */
CC_INLINE u32 westwood_ssthresh(struct westwood *westwood, struct cc *cc)
{
	u32 half = reno_ssthresh(&westwood->reno, cc);
	u64 bytes;

	if (!westwood->bandwidth)
		return half;
	bytes = mul_div(westwood->bandwidth, westwood_rtt_min_us(westwood), USEC_PER_SEC);
	return min32(max32(narrow(bytes / max32(cc->mss, 1)), CC_SSTHRESH_LEAST), CC_CWND_MOST);
}

CC_INLINE u32 westwood_undo(struct westwood *westwood, struct cc *cc)
{
	return reno_undo(&westwood->reno, cc);
}

CC_INLINE void westwood_event(struct westwood *westwood, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && cc->state == CC_LOSS)
		westwood->forget_rtt = 1;
}
