/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* TCP-Illinois: Liu, Basar, Srikant, "TCP-Illinois: a loss and delay-based congestion control algorithm
 * for high-speed networks", VALUETOOLS 2006, with its names and its parameters (section 4). Loss says
 * whether the window grows or shrinks, the queueing delay by how much. */
#pragma once

#include "cc.h"

/* alpha and beta are counted in such parts. */
#define ILLINOIS_ONE 1024u
#define ILLINOIS_ALPHA_MAX (10 * ILLINOIS_ONE)
#define ILLINOIS_ALPHA_MIN (3 * ILLINOIS_ONE / 10)
#define ILLINOIS_BETA_MIN (ILLINOIS_ONE / 8)
#define ILLINOIS_BETA_MAX (ILLINOIS_ONE / 2)
/* Below this window it is Reno. */
#define ILLINOIS_WINDOW_THRESH 15u
/* Round-trips with a short queue after which alpha is at its most again. */
#define ILLINOIS_THETA 5u

struct illinois {
	u64 sum_rtt_us;   /* of the round-trip times of this round ... */
	u32 samples;      /* ... so many */
	u32 round_end;    /* `snd_nxt` when it began */
	u32 base_rtt_us;  /* least round-trip time; 0: none yet */
	u32 max_rtt_us;   /* greatest */
	u32 alpha;        /* packets by which a window grows in a round-trip, in 1024ths */
	u32 beta;         /* part of the window that a loss takes, in 1024ths */
	u32 credit;       /* packets acknowledged since the last increment */
	u32 acked;        /* packets that this acknowledgement acknowledged cumulatively */
	u32 prior_cwnd;
	u8 above;         /* the queue was long since alpha was at its most */
	u8 low_rounds;    /* rounds since in which it was short */
};

/* Section 3.1: f_1. dm is the greatest average queueing delay, da the present one. */
CC_INLINE u32 illinois_alpha(u32 da, u32 dm)
{
	u32 d1 = dm / 100;
	u64 span, over;

	if (da <= d1)
		return ILLINOIS_ALPHA_MAX;
	/* kappa_1 / (kappa_2 + da), with both put in and the fraction expanded by alpha_max - alpha_min:
	 * (dm - d1) alpha_min alpha_max / ((dm - d1) alpha_min + (da - d1) (alpha_max - alpha_min)). */
	span = (u64)(dm - d1) * ILLINOIS_ALPHA_MIN;
	over = (u64)(da - d1) * (ILLINOIS_ALPHA_MAX - ILLINOIS_ALPHA_MIN);
	return max32(narrow(mul_div(span, ILLINOIS_ALPHA_MAX, add_sat(span, over))), 1);
}

/* f_2: beta_min up to d2 = 0.1 dm, beta_max from d3 = 0.8 dm, a line between them. */
CC_INLINE u32 illinois_beta(u32 da, u32 dm)
{
	u32 d2 = dm / 10, d3 = (u32)((u64)dm * 8 / 10);

	if (da <= d2)
		return ILLINOIS_BETA_MIN;
	if (da >= d3 || d3 <= d2)
		return ILLINOIS_BETA_MAX;
	return ILLINOIS_BETA_MIN + (u32)((u64)(ILLINOIS_BETA_MAX - ILLINOIS_BETA_MIN) * (da - d2) /
					 (d3 - d2));
}

CC_INLINE void illinois_round(struct illinois *illinois, const struct cc *cc)
{
	illinois->round_end = cc->snd_nxt;
	illinois->sum_rtt_us = 0;
	illinois->samples = 0;
}

/* Section 3.2: from less to the most only when the queue was short for some rounds. They need not be in a
 * row, as in Linux. */
CC_INLINE void illinois_set_alpha(struct illinois *illinois, u32 alpha)
{
	if (alpha < ILLINOIS_ALPHA_MAX) {
		illinois->above = 1;
		illinois->alpha = alpha;
	} else if (!illinois->above || ++illinois->low_rounds >= ILLINOIS_THETA) {
		illinois->above = 0;
		illinois->low_rounds = 0;
		illinois->alpha = alpha;
	}
}

/* A round is over: alpha and beta by the mean delay in it. */
CC_INLINE void illinois_update(struct illinois *illinois, const struct cc *cc)
{
	u32 da, dm;

	if (cc->cwnd < ILLINOIS_WINDOW_THRESH) {
		illinois->alpha = ILLINOIS_ONE;
		illinois->beta = ILLINOIS_BETA_MAX;
		return;
	}
	if (!illinois->samples)
		return;
	da = sub_sat32(narrow(illinois->sum_rtt_us / illinois->samples), illinois->base_rtt_us);
	dm = sub_sat32(illinois->max_rtt_us, illinois->base_rtt_us);
	illinois_set_alpha(illinois, illinois_alpha(da, dm));
	illinois->beta = illinois_beta(da, dm);
}

CC_INLINE void illinois_init(struct illinois *illinois, struct cc *cc)
{
	illinois->alpha = ILLINOIS_ALPHA_MAX;
	illinois->beta = ILLINOIS_BETA_MAX;
	illinois_round(illinois, cc);
}

CC_INLINE void illinois_measure(struct illinois *illinois, struct cc *cc,
				const struct cc_sample *sample)
{
	u32 rtt_us = sample->rtt_us;

	/* Also the one that ends a recovery, which may acknowledge a window. */
	illinois->acked = sample->advanced;
	if (!rtt_us)
		return;
	if (!illinois->base_rtt_us || rtt_us < illinois->base_rtt_us)
		illinois->base_rtt_us = rtt_us;
	illinois->max_rtt_us = max32(illinois->max_rtt_us, rtt_us);
	illinois->sum_rtt_us += rtt_us;
	illinois->samples++;
}

/* alpha packets in a window, as Linux counts them: whole acknowledgements are collected until they are
 * worth a packet, and what they are worth beyond whole packets is lost. At an alpha of 10 a window of 25
 * grows by 8 in a round-trip, or by 6 where each is for two packets, and not by 10. */
CC_INLINE void illinois_increase(struct illinois *illinois, struct cc *cc)
{
	u64 price = (u64)max32(cc->cwnd, 1) * ILLINOIS_ONE, worth;

	illinois->credit = add_sat32(illinois->credit, illinois->acked);
	worth = (u64)illinois->credit * illinois->alpha;
	if (worth < price)
		return;
	cc->cwnd = cc_window(cc, cc->cwnd + worth / price);
	illinois->credit = 0;
}

/* A round that ends while losses are repaired lasts until they are. */
CC_INLINE void illinois_grow(struct illinois *illinois, struct cc *cc,
			     const struct cc_sample *sample)
{
	if (before(illinois->round_end, cc->snd_una)) {
		illinois_update(illinois, cc);
		illinois_round(illinois, cc);
	}
	if (!sample->cwnd_limited)
		return;
	if (cc_in_slow_start(cc))
		cc_slow_start(cc, sample->acked);
	else
		illinois_increase(illinois, cc);
}

CC_INLINE u32 illinois_ssthresh(struct illinois *illinois, struct cc *cc)
{
	illinois->prior_cwnd = cc->cwnd;
	illinois->credit = 0;
	return cc_fraction(cc, ILLINOIS_ONE - min32(illinois->beta, ILLINOIS_BETA_MAX), ILLINOIS_ONE);
}

CC_INLINE u32 illinois_undo(struct illinois *illinois, struct cc *cc)
{
	return max32(cc->cwnd, illinois->prior_cwnd);
}

/* After a timeout it begins as Reno. */
CC_INLINE void illinois_event(struct illinois *illinois, struct cc *cc, enum cc_event event)
{
	if (event != CC_STATE || cc->state != CC_LOSS)
		return;
	illinois->alpha = ILLINOIS_ONE;
	illinois->beta = ILLINOIS_BETA_MAX;
	illinois->above = 0;
	illinois->low_rounds = 0;
	illinois_round(illinois, cc);
}
