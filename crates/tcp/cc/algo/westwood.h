/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Westwood+: Grieco, Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and Vegas
 * TCP congestion control", ACM CCR 34(2), 2004; Mascolo and others, "TCP Westwood: bandwidth estimation
 * for enhanced transport over wireless links", MobiCom 2001. Grows as Reno; on loss the window becomes
 * what the path was seen to carry, and not half of what it was. */
#pragma once

#include "reno.h"

/* Time is counted in ticks of such a length, and of RTTmin a part of one as a whole: as in Linux where it
 * counts 250 a second, whose curves are the yardstick here. It is what makes the window after a loss a
 * little more than was seen to get through, without which Westwood+ would never win back what it lost. */
#define WESTWOOD_TICK_US 4000u
/* Bandwidth is measured over a round-trip, but never over less than 50 ms: the samples of a short path
 * are noise. */
#define WESTWOOD_INTERVAL_LEAST (50000u / WESTWOOD_TICK_US)
/* The low-pass filter keeps 7/8 of its value at each sample. */
#define WESTWOOD_FILTER 8u

struct westwood {
	struct reno reno;
	u64 filtered;          /* samples after the first filter, bytes per tick */
	u64 bandwidth;         /* and after the second: BWE */
	u64 counted;           /* bytes that were acknowledged in the sample under way */
	u32 since;             /* when it began, in ticks */
	u32 una;               /* first byte not acknowledged, at the last acknowledgement */
	u32 accounted;         /* bytes counted for duplicate acknowledgements, not yet acknowledged */
	u32 rtt;               /* last round-trip time, in ticks */
	u32 rtt_min;           /* least round-trip time since the last timeout: RTTmin, in ticks */
	u32 forget_rtt;        /* the next round-trip time is the least: the path may be another */
};

/* What the division leaves is lost, as in Linux: at low rates the estimate is some bytes per tick short. */
CC_INLINE u64 westwood_filter(u64 value, u64 sample)
{
	return (value * (WESTWOOD_FILTER - 1) + sample) / WESTWOOD_FILTER;
}

CC_INLINE u32 westwood_now(const struct cc *cc)
{
	return (u32)(cc->now_ns / NSEC_PER_USEC / WESTWOOD_TICK_US);
}

/* The first sample begins here: of the two round-trips that it takes, only one delivers something. A kernel has
 * told of the acknowledgement of the SYN before, which came from nowhere. */
CC_INLINE void westwood_init(struct westwood *westwood, struct cc *cc)
{
	westwood->since = westwood_now(cc);
	westwood->una = cc->snd_una;
	westwood->counted = 0;
	westwood->accounted = 0;
	westwood->bandwidth = westwood->filtered = 0;
}

/* The paper of 2001, procedure AckedCount: a duplicate acknowledgement tells of one packet, whatever it
 * SACKs; the one that acknowledges them cumulatively counts for what they have not told of. So what one
 * that stands for many SACKs is short of counts only when the loss is repaired. */
CC_INLINE u32 westwood_count(struct westwood *westwood, const struct cc *cc)
{
	u32 acked = cc->snd_una - westwood->una, told;

	westwood->una = cc->snd_una;
	if (!acked) {
		westwood->accounted = add_sat32(westwood->accounted, cc->mss);
		return cc->mss;
	}
	if (acked <= cc->mss)
		return acked;
	if (westwood->accounted >= acked) {
		westwood->accounted -= acked;
		return cc->mss;
	}
	told = westwood->accounted;
	westwood->accounted = 0;
	return acked - told;
}

/* Westwood+, section 2: a sample of d_k / T_k once in a round-trip time, filtered. Two filters stand
 * in series, as where it is in use. Counting ticks matters: acknowledgements come in trains, and an
 * interval that ends a packet after a round-trip would count two packets too many. */
CC_INLINE void westwood_estimate(struct westwood *westwood, const struct cc *cc)
{
	u32 now = westwood_now(cc), elapsed = now - westwood->since;
	u64 sample;

	if (!westwood->rtt || elapsed <= max32(westwood->rtt, WESTWOOD_INTERVAL_LEAST))
		return;
	sample = min64(westwood->counted / elapsed, U32_MOST);
	if (!westwood->bandwidth && !westwood->filtered) {
		westwood->filtered = westwood->bandwidth = sample;
	} else {
		westwood->filtered = westwood_filter(westwood->filtered, sample);
		westwood->bandwidth = westwood_filter(westwood->bandwidth, westwood->filtered);
	}
	westwood->since = now;
	westwood->counted = 0;
}

/* What comes at the end of an interval is the first of the next. */
CC_INLINE void westwood_measure(struct westwood *westwood, struct cc *cc,
				const struct cc_sample *sample)
{
	/* TCP-ME's mark, told of by itself. */
	if (sample->wla && !sample->acked)
		return;
	westwood_estimate(westwood, cc);
	westwood->counted += westwood_count(westwood, cc);
	if (!sample->rtt_us)
		return;
	westwood->rtt = (sample->rtt_us - 1) / WESTWOOD_TICK_US + 1;
	if (!westwood->rtt_min || westwood->forget_rtt)
		westwood->rtt_min = westwood->rtt;
	westwood->rtt_min = min32(westwood->rtt_min, westwood->rtt);
	westwood->forget_rtt = 0;
}

CC_INLINE void westwood_grow(struct westwood *westwood, struct cc *cc,
			     const struct cc_sample *sample)
{
	reno_grow(&westwood->reno, cc, sample);
}

/* Westwood+, figure 1: max(2, BWE x RTTmin / seg_size). Before anything was measured, the threshold as it
 * is. */
CC_INLINE u32 westwood_window(const struct westwood *westwood, const struct cc *cc)
{
	u64 bytes;

	if (!westwood->bandwidth)
		return cc->ssthresh;
	bytes = westwood->bandwidth * westwood->rtt_min;
	return min32(max32(narrow(bytes / max32(cc->mss, 1)), CC_SSTHRESH_LEAST), CC_CWND_MOST);
}

/* While losses are repaired the window is halved as Reno's; what the path was seen to carry it gets when
 * they are (where it is in use; the paper is not clear about it). */
CC_INLINE u32 westwood_ssthresh(struct westwood *westwood, struct cc *cc)
{
	return reno_ssthresh(&westwood->reno, cc);
}

CC_INLINE u32 westwood_undo(struct westwood *westwood, struct cc *cc)
{
	return reno_undo(&westwood->reno, cc);
}

CC_INLINE void westwood_event(struct westwood *westwood, struct cc *cc, enum cc_event event)
{
	if (event == CC_REDUCED) {
		cc->ssthresh = westwood_window(westwood, cc);
		if (westwood->bandwidth)
			cc->cwnd = cc_window(cc, cc->ssthresh);
	} else if (event == CC_STATE && cc->state == CC_LOSS) {
		cc->ssthresh = westwood_window(westwood, cc);
		westwood->forget_rtt = 1;
	}
}
