/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A control for a radio leg, out of parts of others. On a short leg whose link loses packets, or delivers
 * them late, a window that is cut at every loss takes most of the link away: not one loss in a hundred
 * has to do with a queue. This is CUBIC, in growth and in reduction, but for what it takes for congestion:
 *
 * 1. A loss while there is a queue, by the least round-trip time of a round. A full queue is what a drop-tail
 *    one loses packets by, so that beside CUBIC both reduce at the same losses.
 * 2. Of a sender that came into a queue that others keep standing, the least round-trip time holds that
 *    queue. So a loss is congestion too where the queue is near the deepest that was seen lately, be it
 *    a shallow one; but then the window is left what the path was seen to carry in its least
 *    round-trip time (Westwood's BWE x RTTmin), and a burst: no queue is held by less.
 * 3. Losses without a queue of which there are more than chance takes: a policer has none. Once or twice that can be
 *    what slow start has sent into a queue that was full before it was seen: then the window falls to what the path was
 *    seen to carry. Again, every loss is congestion for some time. A burst into an empty queue, of which the least round trip
 *    of its round tells nothing, is told from a policer by the packet delivered last: if it has met a queue, the window
 *    falls to a part of what path and queue hold. So it does where the first slow start ends by rule 1: its window may
 *    be twice that, and what CUBIC leaves of it would overflow the queue again.
 * 4. ECN's marks: the network itself says so.
 *
 * And slow start goes on if the delay that ended it was a passing one (HyStart++, RFC 9406): a link layer that delivers in
 * order stalls while it repairs a block, which looks like a queue. Nor does it end because acknowledgements come in a train as
 * long as the path (HyStart) where that is how the data came to the relay: a paced server's come evenly. Nor while a loss is
 * repaired: a packet goes for each that is delivered, and is acknowledged as evenly. HyStart has no such slow start, as a loss ends it.
 *
 * Other losses are repaired and change nothing, in slow start either. A late packet is held lost and
 * sent again, as the stack has it; that it was needless then costs one packet, and not the window. */
#pragma once

#include "best.h"
#include "cubic.h"
#include "prr.h"

/* A queue is what tells HyStart of one (RFC 9406, section 4.3), or a round trip where that is less. A shallow
 * one, as a part of the round trip, and how near it is to the deepest, in 256ths: */
#define RADIO_SHALLOW_DIVISOR 4u
#define RADIO_NEAR 192u
/* What it leaves beyond what fits into the least round trip: a stack lets packets go in bursts of what
 * segmentation offload takes together, 64 KB, or of a third of the window (Linux's tcp_tso_win_divisor), and a window
 * that has no room for one leaves the link idle in between. */
#define RADIO_BURST 44u
#define RADIO_BURST_DIVISOR 3u
/* For how long the deepest queue counts, milliseconds: as long as CUBIC takes between two losses. */
#define RADIO_DEEPEST_MS 10000u
/* Rounds in which the path was seen to carry so much. */
#define RADIO_BW_ROUNDS 10u
/* Losing more than 1 in 16 is no chance, where so many at least were delivered in so many rounds. */
#define RADIO_MUCH_ONE_IN 16u
#define RADIO_MUCH_DELIVERED 1000u
#define RADIO_MUCH_ROUNDS 8u
/* And more than 1 in 10 of far fewer, over two rounds: a policer takes half of what slow start sends. */
#define RADIO_TOO_MUCH_ONE_IN 10u
#define RADIO_TOO_MUCH_SENT 100u
#define RADIO_TOO_MUCH_ROUNDS 2u
/* So often that is an overflow of slow start's, whose window comes back if it proves a mistake; then it is a policer. */
#define RADIO_OVERFLOWS 2u
/* For how long each is remembered, and for how long every loss is congestion after that, milliseconds. */
#define RADIO_POLICED_MS 10000u

/* What a loss is taken for. */
enum radio_cause {
	RADIO_CHANCE,
	RADIO_SHALLOW_QUEUE, /* rule 2 */
	RADIO_OVERFLOW,      /* rule 3, once or twice */
	RADIO_CONGESTION,
};

struct radio {
	struct cubic cubic;
	struct prr prr;
	struct best bandwidth;     /* bytes per second */
	struct best deepest;       /* queue, microseconds */
	u32 round;
	u32 round_ends;            /* `delivered` when the last packet of the round is */
	u32 rtt_us;                /* least of this round; 0: none yet */
	u32 last_rtt_us;           /* of the round before; 0: there was none */
	u32 lost;                  /* at the last acknowledgement */
	u32 delivered_ce;          /* then, too */
	u32 reduced_until;         /* `snd_nxt` when the window was reduced */
	u32 much_round;            /* since this round what is lost is counted, against these numbers */
	u32 much_delivered;
	u32 much_lost;
	u32 suspected_until;       /* milliseconds: how long `suspected` holds */
	u32 prior_cwnd;            /* before a reduction that may prove a mistake */
	u8 reduced;                /* it was, since the stack began its own */
	u8 reducing;               /* `reduced_until` is in force */
	u8 suspected;              /* times that more was lost than chance takes; beyond RADIO_OVERFLOWS it is policed */
};

/* How much longer than the least of all the least round-trip time of a round is. */
CC_INLINE u32 radio_queue_us(const struct radio *radio, const struct cc *cc)
{
	u32 rtt = radio->last_rtt_us;

	if (radio->rtt_us && (radio->rtt_us < rtt || !rtt))
		rtt = radio->rtt_us;
	return sub_sat32(rtt, cc->min_rtt_us);
}

CC_INLINE u32 radio_now_ms(const struct cc *cc)
{
	return (u32)(cc->now_ns / NSEC_PER_MSEC);
}

CC_APART radio_end_round(struct radio *radio, const struct cc *cc)
{
	if (!radio || !cc)
		return 0;
	if (radio->rtt_us)
		best_observe(&radio->deepest, sub_sat32(radio->rtt_us, cc->min_rtt_us),
			     radio_now_ms(cc), RADIO_DEEPEST_MS);
	radio->round++;
	radio->round_ends = cc->delivered;
	radio->last_rtt_us = radio->rtt_us;
	radio->rtt_us = 0;
	return 0;
}

CC_INLINE void radio_observe(struct radio *radio, const struct cc *cc,
			     const struct cc_sample *sample)
{
	u64 bw = cc_rate(cc, sample->rate_delivered, sample->rate_interval_us);

	if (sample->rate_interval_us && !before(sample->prior_delivered, radio->round_ends))
		radio_end_round(radio, cc);
	if (sample->rtt_us && (!radio->rtt_us || sample->rtt_us < radio->rtt_us))
		radio->rtt_us = sample->rtt_us;
	if (bw && (!sample->app_limited || bw >= best_value(&radio->bandwidth)))
		best_observe(&radio->bandwidth, bw, radio->round, RADIO_BW_ROUNDS);
}

/* What was lost until now counts no more for rule 3. */
CC_INLINE void radio_count_anew(struct radio *radio, const struct cc *cc)
{
	radio->much_round = radio->round;
	radio->much_delivered = cc->delivered;
	radio->much_lost = cc->lost;
}

/* Rule 3; to be asked when something is lost. What was counted counts once. */
CC_INLINE int radio_loses_much(struct radio *radio, const struct cc *cc)
{
	u32 delivered = cc->delivered - radio->much_delivered;
	u32 lost = cc->lost - radio->much_lost, rounds = radio->round - radio->much_round;
	u64 sent = (u64)delivered + lost;
	int too_much = sent >= RADIO_TOO_MUCH_SENT && rounds >= RADIO_TOO_MUCH_ROUNDS &&
		       (u64)lost * RADIO_TOO_MUCH_ONE_IN > sent;

	if (!too_much && (delivered < RADIO_MUCH_DELIVERED || rounds < RADIO_MUCH_ROUNDS))
		return 0;
	radio_count_anew(radio, cc);
	return too_much || (u64)lost * RADIO_MUCH_ONE_IN > sent;
}

CC_INLINE int radio_is_policed(const struct radio *radio)
{
	return radio->suspected > RADIO_OVERFLOWS;
}

CC_INLINE void radio_suspect(struct radio *radio, const struct cc *cc, u32 times)
{
	radio->suspected = (u8)min32(times, RADIO_OVERFLOWS + 1);
	radio->suspected_until = radio_now_ms(cc) + RADIO_POLICED_MS;
}

/* Whether what is lost may be what overflowed some rounds ago: it is told of until it is repaired, when the queue has gone
 * long since. */
CC_INLINE int radio_repairs(const struct radio *radio, const struct cc *cc)
{
	u32 since_ms = radio_now_ms(cc) - (radio->suspected_until - RADIO_POLICED_MS);
	u32 rounds_ms = cc->min_rtt_us * RADIO_MUCH_ROUNDS / 1000u;

	return !radio_is_policed(radio) &&
	       (radio->reducing || (radio->suspected && since_ms < rounds_ms));
}

CC_INLINE enum radio_cause radio_cause(struct radio *radio, const struct cc *cc)
{
	u32 base = cc->min_rtt_us, queue = radio_queue_us(radio, cc);
	int is_full = queue > min32(base, hystart_threshold_us(base)), much = 0;
	u64 deepest = best_value(&radio->deepest);

	/* A policer is still there, until it is shown otherwise. */
	if (radio->suspected && !before(radio_now_ms(cc), radio->suspected_until))
		radio_suspect(radio, cc, radio_is_policed(radio) ? RADIO_OVERFLOWS : 0);
	if (is_full || radio_repairs(radio, cc))
		radio_count_anew(radio, cc);
	else
		much = radio_loses_much(radio, cc);
	if (much)
		radio_suspect(radio, cc, radio->suspected + 1u);
	if (is_full || radio_is_policed(radio))
		return RADIO_CONGESTION;
	if (much)
		return RADIO_OVERFLOW;
	if (deepest > base / RADIO_SHALLOW_DIVISOR && queue >= deepest * RADIO_NEAR / 256)
		return RADIO_SHALLOW_QUEUE;
	return RADIO_CHANCE;
}

/* `rtt_us` is the round trip of the packet delivered last; 0: none was measured. */
CC_INLINE void radio_reduce(struct radio *radio, struct cc *cc, enum radio_cause cause, u32 rtt_us)
{
	u64 carried = cc_bdp(cc, best_value(&radio->bandwidth), cc->min_rtt_us);
	u64 left = carried + min64(carried / RADIO_BURST_DIVISOR, RADIO_BURST);
	/* CUBIC's part of what path and queue hold. */
	u64 held = cc_bdp(cc, best_value(&radio->bandwidth), rtt_us) * CUBIC_BETA_NUMERATOR /
		   CUBIC_BETA_DENOMINATOR;
	int overshoots = cause == RADIO_CONGESTION && cc->ssthresh >= CC_SSTHRESH_INFINITE && held;
	u32 cwnd = cc->cwnd;

	if (!radio->reduced)
		radio->prior_cwnd = cwnd;
	radio->reduced = radio->reducing = 1;
	radio->reduced_until = cc->snd_nxt;
	cc->ssthresh = cubic_ssthresh(&radio->cubic, cc);
	hystart_reset(&radio->cubic.hystart);
	if (cause == RADIO_SHALLOW_QUEUE)
		cc->ssthresh = max32(cc->ssthresh, (u32)min64(left, cwnd));
	else if (left && (cause == RADIO_OVERFLOW || overshoots))
		cc->ssthresh = max32((u32)min64(cc->ssthresh, max64(left, held)),
				     CC_SSTHRESH_LEAST);
	prr_begin(&radio->prr, cc);
}

/* It is not paced, as CUBIC is not: who is beside one that is not takes fewer of the losses. */
CC_INLINE void radio_init(struct radio *radio, struct cc *cc)
{
	radio->round_ends = radio->much_delivered = cc->delivered;
	radio->lost = radio->much_lost = cc->lost;
	radio->delivered_ce = cc->delivered_ce;
	cc->pacing_rate = 0;
}

/* Whatever CUBIC is configured to have. To be asked in the first slow start (RFC 9406, section 4.3): a later one ends at the
 * threshold that the path taught. */
CC_INLINE void radio_leave_slow_start(struct hystart *hystart, struct cc *cc,
				      const struct cc_sample *sample)
{
	int full = hystart_plus_plus_full(hystart, cc, sample->rtt_us);

	if (sample->app_limited || cc->state == CC_RECOVERY)
		hystart_break_train(hystart, cc);
	else if (hystart_train_full(hystart, cc, cc->min_rtt_us))
		full = 1;
	if (full)
		cc->ssthresh = cc->cwnd;
}

CC_INLINE void radio_control(struct radio *radio, struct cc *cc, const struct cc_sample *sample)
{
	u32 lost = cc->lost - radio->lost;
	int marked = cc->delivered_ce != radio->delivered_ce;
	enum radio_cause cause = RADIO_CHANCE;

	radio->lost = cc->lost;
	radio->delivered_ce = cc->delivered_ce;
	radio_observe(radio, cc, sample);
	if (sample->rtt_us && cc->ssthresh >= CC_SSTHRESH_INFINITE)
		radio_leave_slow_start(&radio->cubic.hystart, cc, sample);
	if (radio->reducing && !before(cc->snd_una, radio->reduced_until)) {
		radio->reducing = 0;
		cc->cwnd = cc_window(cc, cc->ssthresh);
	}
	if (marked)
		cause = RADIO_CONGESTION;
	else if (lost)
		cause = radio_cause(radio, cc);
	if (cause != RADIO_CHANCE && !radio->reducing && cc->state != CC_LOSS)
		radio_reduce(radio, cc, cause, sample->rtt_us);
	if (radio->reducing)
		cc->cwnd = prr_window(&radio->prr, cc, sample);
	else
		cubic_grow(&radio->cubic, cc, sample);
}

/* The stack begins a reduction of its own, which `radio_control` decides about in its stead. The
 * threshold stays, unless it was a timeout. */
CC_INLINE u32 radio_ssthresh(struct radio *radio, struct cc *cc)
{
	radio->reduced = 0;
	radio->prior_cwnd = cc->cwnd;
	return max32(cc->ssthresh, CC_SSTHRESH_LEAST);
}

/* CUBIC's, of the window that there was: the stack has taken it already. */
CC_INLINE void radio_time_out(struct radio *radio, struct cc *cc)
{
	u32 cwnd = cc->cwnd;

	cc->cwnd = max32(cwnd, radio->prior_cwnd);
	cc->ssthresh = cubic_ssthresh(&radio->cubic, cc);
	cc->cwnd = cwnd;
	radio->reduced = 1;
	radio->reducing = 0;
}

CC_INLINE u32 radio_undo(struct radio *radio, struct cc *cc)
{
	/* After a timeout: what it held lost was not. */
	if (cc->state == CC_LOSS)
		radio->lost = cc->lost;
	if (!radio->reduced)
		return cc->cwnd;
	radio->reduced = radio->reducing = 0;
	cubic_undo(&radio->cubic, cc);
	return max32(cc->cwnd, radio->prior_cwnd);
}

/* A tail loss probe has repaired a loss that was never held one (RFC 8985, 7.4.2), and which may be chance as any
 * other; or the packet was marked, which `radio_control` sees. */
CC_INLINE void radio_tail_lost(struct radio *radio, struct cc *cc)
{
	enum radio_cause cause = radio_cause(radio, cc);

	if (cause != RADIO_CHANCE && !radio->reducing)
		radio_reduce(radio, cc, cause, 0);
}

CC_INLINE void radio_event(struct radio *radio, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && cc->state == CC_CWR)
		radio_tail_lost(radio, cc);
	else if (event == CC_STATE && cc->state == CC_LOSS)
		radio_time_out(radio, cc);
	cubic_event(&radio->cubic, cc, event);
}
