/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CUBIC: RFC 9438, with its names. */
#pragma once

#include "hystart.h"

/* Section 4.6: beta_cubic = 0.7. Section 4.1: C = 0.4, here as 2/5. */
#define CUBIC_BETA_NUMERATOR 7u
#define CUBIC_BETA_DENOMINATOR 10u
/* Section 4.3: alpha_cubic = 3 x (1 - beta_cubic) / (1 + beta_cubic) = 9/17. */
#define CUBIC_ALPHA_NUMERATOR 9u
#define CUBIC_ALPHA_DENOMINATOR 17u

/* Time is counted in 1024ths of a second, windows on the curve in 1024ths of a packet. */
#define CUBIC_TICK_SHIFT 10
#define CUBIC_WINDOW_SHIFT 10
/* C x t^3 is computed for up to so many ticks, 34 minutes. */
#define CUBIC_TICKS_MOST (1u << 21)
/* A part of a packet that `credit` counts. */
#define CUBIC_CREDIT_SHIFT 20

/* What is put back if a reduction was a mistake (section 4.9). */
struct cubic_curve {
	u64 epoch_ns;   /* when this stage of congestion avoidance began; 0: it did not yet */
	u32 w_max;      /* the window before the last reduction; 0: there was none */
	u32 k;          /* ticks from the epoch until the curve is at w_max */
	u32 w_est;      /* the window that Reno would have */
	u32 cwnd_prior; /* the window when the threshold was set */
};

struct cubic {
	struct cubic_curve curve;
	u64 last_ns;    /* when `grow` was called last */
	u32 credit;     /* part of a packet by which the window is to grow; counted: packets acknowledged
			 * towards `price` */
	u32 est_credit; /* packets acknowledged towards the next increment of `w_est` */
	u32 priced_at;  /* counted: when `price` was reckoned, by Linux's clock */
	u32 price;      /* packets acknowledged for which the window grows by one; 0: to be reckoned */
	struct hystart hystart;
	u32 prior_cwnd;
	struct cubic_curve prior;
};

/* Section 4.2, equation 2: K, the time from a window of `cwnd` to one of `w_max`. */
CC_INLINE u32 cubic_k(u32 w_max, u32 cwnd)
{
	u64 packets = min32(sub_sat32(w_max, cwnd), CC_CWND_MOST);

	return cube_root((packets << (3 * CUBIC_TICK_SHIFT)) / 2 * 5);
}

/* Equation 1: W_cubic(t), in 1024ths of a packet. */
CC_INLINE u64 cubic_window(const struct cubic_curve *curve, u64 ticks)
{
	u64 distance = ticks < curve->k ? curve->k - ticks : ticks - curve->k;
	u64 plateau = (u64)curve->w_max << CUBIC_WINDOW_SHIFT, offset;

	distance = min64(distance, CUBIC_TICKS_MOST - 1);
	offset = distance * distance * distance / 5 * 2 >>
		 (3 * CUBIC_TICK_SHIFT - CUBIC_WINDOW_SHIFT);
	return ticks < curve->k ? sub_sat(plateau, offset) : plateau + offset;
}

CC_INLINE u64 cubic_ticks(u64 ns)
{
	return mul_sat(ns / NSEC_PER_USEC, 1u << CUBIC_TICK_SHIFT) / USEC_PER_SEC;
}

CC_INLINE void cubic_begin_epoch(struct cubic *cubic, const struct cc *cc)
{
	struct cubic_curve *curve = &cubic->curve;

	curve->epoch_ns = max64(cc->now_ns, 1);
	curve->w_est = cc->cwnd;
	/* Also where there was no reduction: K = 0 and W_max = cwnd (sections 4.7, 4.10). */
	if (curve->w_max < cc->cwnd)
		curve->w_max = cc->cwnd;
	curve->k = cubic_k(curve->w_max, cc->cwnd);
	cubic->credit = cubic->est_credit = 0;
	cubic->price = 0;
}

/* Section 4.3, equation 4. `alpha_cubic` becomes 1 at the window before the reduction. */
CC_INLINE void cubic_estimate_reno(struct cubic *cubic, const struct cc *cc, u32 acked)
{
	struct cubic_curve *curve = &cubic->curve;
	u64 price = (u64)cc->cwnd;
	u64 sum = (u64)cubic->est_credit + acked;

	if (curve->w_est < curve->cwnd_prior || cc->config.cubic_constant_alpha)
		price = price * CUBIC_ALPHA_DENOMINATOR / CUBIC_ALPHA_NUMERATOR;
	price = max64(price, 1);
	curve->w_est = min32(narrow(curve->w_est + sum / price), CC_CWND_MOST);
	cubic->est_credit = narrow(sum % price);
}

/* What a packet more costs in the Reno-friendly region: as few as let the window reach Reno's in a
 * round trip. */
CC_INLINE u64 cubic_friendly_price(struct cubic *cubic, const struct cc *cc)
{
	const struct cubic_curve *curve = &cubic->curve;

	cubic_estimate_reno(cubic, cc, 0);
	return curve->w_est > cc->cwnd ? cc->cwnd / (curve->w_est - cc->cwnd) : U64_MOST;
}

/* W_cubic(t) in whole packets, as where it is counted: it is the distance from the plateau that is
 * rounded down. So right after a loss the curve is a packet above the window, and that packet comes in the
 * first round-trip. */
CC_INLINE u64 cubic_target(const struct cubic_curve *curve, u64 ticks)
{
	u64 window = cubic_window(curve, ticks), part = (1u << CUBIC_WINDOW_SHIFT) - 1;

	return (ticks < curve->k ? window + part : window) >> CUBIC_WINDOW_SHIFT;
}

/* The price of a packet more: Ha, Rhee, Xu, "CUBIC: a new TCP-friendly high-speed TCP variant", 2008,
 * algorithm 1. */
CC_INLINE u64 cubic_reckon(struct cubic *cubic, const struct cc *cc)
{
	struct cubic_curve *curve = &cubic->curve;
	u64 elapsed = sub_sat(cc->now_ns, curve->epoch_ns);
	u64 ahead = add_sat(elapsed, (u64)cc->min_rtt_us * NSEC_PER_USEC);
	u64 target = cubic_target(curve, cubic_ticks(ahead));
	u64 price = (u64)cc->cwnd * 100;

	/* While nothing is known of the path, a packet for twenty (Linux). */
	if (!curve->cwnd_prior)
		price = 20;
	if (target > cc->cwnd)
		price = min64(price, cc->cwnd / (target - cc->cwnd));
	return min64(price, cubic_friendly_price(cubic, cc));
}

/* Linux's clock (CONFIG_HZ=250), and a 32nd of a second by it. */
#define CUBIC_CLOCK_NS (4 * NSEC_PER_MSEC)
#define CUBIC_PRICE_STAYS 7u
/* In `priced_at`, below the clock: the window has changed since. */
#define CUBIC_OUTDATED 1u

/* What a packet costs stays as it is while the window does, for a 32nd of a second. Where the window
 * has changed it is reckoned anew, but by the curve once a tick at most: within a tick it can only become
 * cheaper. On a path of a millisecond that is what sets the pace after a loss. */
CC_INLINE void cubic_count(struct cubic *cubic, struct cc *cc, u32 acked)
{
	u32 now = (u32)(cc->now_ns / CUBIC_CLOCK_NS) << 1, cwnd = cc->cwnd;
	u32 age = (now - (cubic->priced_at & ~CUBIC_OUTDATED)) >> 1;
	u64 price = cubic->price;

	cubic->est_credit = add_sat32(cubic->est_credit, acked);
	if (!cubic->price || age > CUBIC_PRICE_STAYS ||
	    (age && (cubic->priced_at & CUBIC_OUTDATED))) {
		price = cubic_reckon(cubic, cc);
		cubic->priced_at = now;
	} else if (cubic->priced_at & CUBIC_OUTDATED) {
		price = min64(price, cubic_friendly_price(cubic, cc));
	}
	/* Nothing is cheaper than a packet for two (section 4.5: target at most 1.5 x cwnd). */
	cubic->price = narrow(max64(price, 2));
	cc_increase(cc, &cubic->credit, cubic->price, acked);
	if (cc->cwnd != cwnd)
		cubic->priced_at |= CUBIC_OUTDATED;
}

/* Sections 4.2 - 4.5. */
CC_INLINE void cubic_avoid_congestion(struct cubic *cubic, struct cc *cc, u32 acked)
{
	struct cubic_curve *curve = &cubic->curve;
	u64 cwnd = (u64)cc->cwnd << CUBIC_WINDOW_SHIFT;
	u64 elapsed, target, sum;

	if (!curve->epoch_ns)
		cubic_begin_epoch(cubic, cc);
	if (cc->config.cubic_counted) {
		cubic_count(cubic, cc, acked);
		return;
	}
	cubic_estimate_reno(cubic, cc, acked);
	elapsed = sub_sat(cc->now_ns, curve->epoch_ns);
	/* Reno-friendly region. */
	if (cubic_window(curve, cubic_ticks(elapsed)) <
	    (u64)curve->w_est << CUBIC_WINDOW_SHIFT) {
		if (curve->w_est > cc->cwnd)
			cc->cwnd = cc_window(cc, curve->w_est);
		return;
	}
	target = cubic_window(curve, cubic_ticks(add_sat(elapsed, (u64)cc->srtt_us * NSEC_PER_USEC)));
	target = min64(max64(target, cwnd), cwnd + cwnd / 2);
	sum = mul_div(target - cwnd, acked, cc->cwnd);
	sum = (sum << (CUBIC_CREDIT_SHIFT - CUBIC_WINDOW_SHIFT)) + cubic->credit;
	cc->cwnd = cc_window(cc, cc->cwnd + (sum >> CUBIC_CREDIT_SHIFT));
	cubic->credit = (u32)(sum & ((1u << CUBIC_CREDIT_SHIFT) - 1));
}

/* For a second from the beginning of a stage of congestion avoidance Linux makes nothing of round-trip times. Where that stage
 * was a mistake, and was taken back, slow start goes on, and nothing but a loss ends it within that second. */
#define CUBIC_DEAF_NS NSEC_PER_SEC

CC_INLINE int cubic_is_deaf(const struct cubic *cubic, const struct cc *cc)
{
	return cc->config.cubic_counted && cubic->curve.epoch_ns &&
	       sub_sat(cc->now_ns, cubic->curve.epoch_ns) < CUBIC_DEAF_NS;
}

CC_INLINE void cubic_measure(struct cubic *cubic, struct cc *cc, const struct cc_sample *sample)
{
	if (sample->rtt_us && cc_in_slow_start(cc) && !cubic_is_deaf(cubic, cc))
		hystart_measure(&cubic->hystart, cc, sample->rtt_us);
}

/* The time since the last call of `grow` is not time on the curve. */
CC_INLINE void cubic_pause(struct cubic *cubic, const struct cc *cc)
{
	u64 since = sub_sat(cc->now_ns, cubic->last_ns);

	if (cubic->curve.epoch_ns)
		cubic->curve.epoch_ns = min64(add_sat(cubic->curve.epoch_ns, since), cc->now_ns);
	cubic->last_ns = cc->now_ns;
}

CC_INLINE void cubic_grow(struct cubic *cubic, struct cc *cc, const struct cc_sample *sample)
{
	u32 acked = sample->acked;

	if (!sample->cwnd_limited) {
		/* Time in which the window was not used does not count (section 5.8). */
		cubic_pause(cubic, cc);
		return;
	}
	cubic->last_ns = cc->now_ns;
	if (cc_in_slow_start(cc)) {
		acked = hystart_allowance(&cubic->hystart, acked);
		acked = cc_slow_start(cc, acked);
	}
	if (acked)
		cubic_avoid_congestion(cubic, cc, acked);
}

/* Sections 4.6 and 4.7 (multiplicative decrease, fast convergence). */
CC_INLINE u32 cubic_ssthresh(struct cubic *cubic, struct cc *cc)
{
	struct cubic_curve *curve = &cubic->curve;

	cubic->prior = *curve;
	cubic->prior_cwnd = cc->cwnd;
	/* W_max = cwnd x (1 + beta_cubic) / 2. */
	if (cc->cwnd < curve->w_max && cc->config.cubic_fast_convergence)
		curve->w_max = (u32)((u64)cc->cwnd * 17 / 20);
	else
		curve->w_max = cc->cwnd;
	curve->cwnd_prior = cc->cwnd;
	curve->epoch_ns = 0;
	return cc_fraction(cc, CUBIC_BETA_NUMERATOR, CUBIC_BETA_DENOMINATOR);
}

/* Section 4.9. Where it is counted the window alone comes back, as in Linux: the curve begins anew from there, at its plateau. */
CC_INLINE u32 cubic_undo(struct cubic *cubic, struct cc *cc)
{
	if (!cc->config.cubic_counted)
		cubic->curve = cubic->prior;
	cubic->price = 0;
	return max32(cc->cwnd, cubic->prior_cwnd);
}

/* The curve begins anew where congestion avoidance does: as section 4.8 has it after a timeout. */
CC_INLINE void cubic_restart(struct cubic *cubic)
{
	cubic->curve.w_max = 0;
	cubic->curve.epoch_ns = 0;
	hystart_reset(&cubic->hystart);
}

CC_INLINE void cubic_event(struct cubic *cubic, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && cc->state == CC_LOSS) {
		cubic_restart(cubic);
	} else if (event == CC_TX_START || event == CC_CWND_RESTART) {
		/* Nor does time without anything to send (section 5.8). */
		cubic_pause(cubic, cc);
	}
}
