/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Leaving slow start before the queue overflows: HyStart (Ha, Rhee, "Taming the elephants: New TCP
 * slow start", Computer Networks 55, 2011) and HyStart++ (RFC 9406). */
#pragma once

#include "cc.h"

/* RFC 9406, section 4.3, with its names; HyStart has the same bounds in today's implementations. */
#define HYSTART_MIN_RTT_THRESH_US 4000u
#define HYSTART_MAX_RTT_THRESH_US 16000u
#define HYSTART_MIN_RTT_DIVISOR 8u
#define HYSTART_N_RTT_SAMPLE 8u
#define HYSTART_CSS_GROWTH_DIVISOR 4u
#define HYSTART_CSS_ROUNDS 5u
/* HyStart, section 4: acknowledgements so close together are of one train, and below so many packets
 * nothing is looked for. */
#define HYSTART_TRAIN_GAP_US 2000u
#define HYSTART_LOW_WINDOW 16u

/* Slow start is left by it once: what a recovery or a later slow start looks like says nothing of the path's first queue
 * (RFC 9406, section 4.3; Linux begins anew after a timeout). */
enum hystart_phase { HYSTART_IDLE, HYSTART_ROUND, HYSTART_FOUND };

struct hystart {
	u32 window_end;    /* where the round ends: `snd_nxt` when it began */
	u32 round_start_us;
	u32 train_us;      /* when the last acknowledgement of the train came */
	u32 current_us;    /* least round-trip time of this round; 0: none yet */
	u32 last_us;       /* of the round before; HyStart: of the connection */
	u32 baseline_us;   /* HyStart++: `current_us` when conservative slow start began */
	u8 samples;        /* of the round-trip time in this round */
	u8 css_rounds;     /* HyStart++: rounds of conservative slow start left; 0 outside of it */
	u8 phase;          /* enum hystart_phase */
	u8 credit;         /* packets acknowledged towards the next increment while conservative */
};

CC_INLINE u32 hystart_now_us(const struct cc *cc)
{
	return (u32)(cc->now_ns / NSEC_PER_USEC);
}

/* How much longer a round-trip must be to speak of a queue. */
CC_INLINE u32 hystart_threshold_us(u32 rtt_us)
{
	u32 part = rtt_us / HYSTART_MIN_RTT_DIVISOR;

	return min32(max32(part, HYSTART_MIN_RTT_THRESH_US), HYSTART_MAX_RTT_THRESH_US);
}

CC_INLINE void hystart_round(struct hystart *hystart, const struct cc *cc)
{
	hystart->window_end = cc->snd_nxt;
	hystart->round_start_us = hystart->train_us = hystart_now_us(cc);
	hystart->current_us = 0;
	hystart->samples = 0;
	hystart->phase = HYSTART_ROUND;
}

CC_INLINE void hystart_reset(struct hystart *hystart)
{
	hystart->phase = HYSTART_IDLE;
	hystart->last_us = 0;
	hystart->css_rounds = 0;
	hystart->credit = 0;
}

CC_INLINE void hystart_sample(struct hystart *hystart, u32 rtt_us)
{
	if (!hystart->current_us || rtt_us < hystart->current_us)
		hystart->current_us = rtt_us;
	if (hystart->samples < HYSTART_N_RTT_SAMPLE)
		hystart->samples++;
}

/* What a sender's own bursts may add to the length of a train: so much as four of the greatest take at
 * twice the window in a round-trip, and no more than a millisecond (Linux, which found slow start to end
 * too early on short paths). */
#define HYSTART_BURSTS_BYTES (4ull * 65536)

CC_INLINE u32 hystart_burst_us(const struct cc *cc)
{
	u64 rate = cc_rate(cc, cc->cwnd, cc->srtt_us);

	return narrow(min64(div_sat(HYSTART_BURSTS_BYTES * USEC_PER_SEC, mul_sat(rate, 2)), 1000));
}

/* What is acknowledged came to the sender bit by bit: the train that begins here, or goes on, says how, and
 * nothing of the path. There is no train until the next round. */
CC_INLINE void hystart_break_train(struct hystart *hystart, const struct cc *cc)
{
	hystart->train_us = hystart_now_us(cc) - HYSTART_TRAIN_GAP_US - 1;
}

/* HyStart: whether acknowledgements have come in a train as long as the way there. `rtt_us` is the round trip
 * without a queue. */
CC_INLINE int hystart_train_full(struct hystart *hystart, const struct cc *cc, u32 rtt_us)
{
	u32 now_us = hystart_now_us(cc);

	if (cc->cwnd < HYSTART_LOW_WINDOW || now_us - hystart->train_us > HYSTART_TRAIN_GAP_US)
		return 0;
	hystart->train_us = now_us;
	return now_us - hystart->round_start_us > add_sat32(rtt_us, hystart_burst_us(cc)) / 2;
}

/* HyStart: whether the pipe is full, by such a train or by a round-trip time that has grown. */
CC_INLINE int hystart_classic_full(struct hystart *hystart, const struct cc *cc, u32 rtt_us)
{
	if (!hystart->last_us || rtt_us < hystart->last_us)
		hystart->last_us = rtt_us;
	/* Nor are rounds counted below it. */
	if (cc->cwnd < HYSTART_LOW_WINDOW)
		return 0;
	if (hystart->phase == HYSTART_IDLE || before(hystart->window_end, cc->snd_una))
		hystart_round(hystart, cc);
	if (hystart_train_full(hystart, cc, hystart->last_us))
		return 1;
	if (hystart->samples < HYSTART_N_RTT_SAMPLE) {
		hystart_sample(hystart, rtt_us);
		return 0;
	}
	return hystart->current_us > hystart->last_us + hystart_threshold_us(hystart->last_us);
}

/* RFC 9406, section 4.2: whether conservative slow start has lasted long enough. */
CC_INLINE int hystart_plus_plus_full(struct hystart *hystart, const struct cc *cc, u32 rtt_us)
{
	if (hystart->phase == HYSTART_IDLE || before(hystart->window_end, cc->snd_una)) {
		if (hystart->phase != HYSTART_IDLE)
			hystart->last_us = hystart->current_us;
		if (hystart->css_rounds && --hystart->css_rounds == 0)
			return 1;
		hystart_round(hystart, cc);
	}
	hystart_sample(hystart, rtt_us);
	if (hystart->css_rounds) {
		/* The delay was a passing one: back to slow start. One sample shows that, where it takes HYSTART_N_RTT_SAMPLE
		 * to speak of a queue: more could only be less. A peer that takes packets together (GRO) acknowledges a round
		 * by fewer, and rounds without a say would end slow start all the same. */
		if (hystart->current_us < hystart->baseline_us)
			hystart->css_rounds = 0;
	} else if (hystart->samples >= HYSTART_N_RTT_SAMPLE && hystart->last_us &&
		   hystart->current_us >=
			   hystart->last_us + hystart_threshold_us(hystart->last_us)) {
		hystart->baseline_us = hystart->current_us;
		hystart->css_rounds = HYSTART_CSS_ROUNDS;
	}
	return 0;
}

/* To be told of every round-trip time measured in slow start: lowers the threshold to the window
 * when it is time for congestion avoidance. */
CC_INLINE void hystart_measure(struct hystart *hystart, struct cc *cc, u32 rtt_us)
{
	int full = 0;

	if (hystart->phase == HYSTART_FOUND)
		return;
	if (cc->config.hystart == CC_HYSTART_CLASSIC)
		full = hystart_classic_full(hystart, cc, rtt_us);
	else if (cc->config.hystart == CC_HYSTART_PLUS_PLUS)
		full = hystart_plus_plus_full(hystart, cc, rtt_us);
	if (full) {
		hystart->phase = HYSTART_FOUND;
		cc->ssthresh = cc->cwnd;
	}
}

/* Of `acked` packets, for how many slow start may grow. */
CC_INLINE u32 hystart_allowance(struct hystart *hystart, u32 acked)
{
	u32 sum;

	if (!hystart->css_rounds)
		return acked;
	sum = add_sat32(acked, hystart->credit);
	hystart->credit = sum % HYSTART_CSS_GROWTH_DIVISOR;
	return sum / HYSTART_CSS_GROWTH_DIVISOR;
}
