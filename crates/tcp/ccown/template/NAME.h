/* NAME: grows as Reno does, but a loss takes a quarter of the window in place of half (RFC 5681, sections 3.1 and 3.2).
 * Say here what it is written from, and why.
 *
 * What each function is asked, and may answer, cc.h says; docs/howto/own-congestion-control.md has it in short. This
 * is run by the kernel, where there is no floating point, no loop without a bound, and nothing of the C library. */
#pragma once

#include "cc.h"

/* One of these for each connection, all zero at its start; the kernel has room for 104 bytes. */
struct NAME {
	u32 credit;     /* packets acknowledged towards the next increment */
	u32 prior_cwnd; /* window before the last reduction, in packets */
};

/* What a loss leaves of the window: 3 / 4. */
#define NAME_KEEPS 3
#define NAME_OF 4

/* An acknowledgement, while the stack is not reducing the window: a packet for each acknowledged below the threshold,
 * above it a packet in a round-trip. */
CC_INLINE void NAME_grow(struct NAME *state, struct cc *cc, const struct cc_sample *sample)
{
	u32 acked = sample->acked;

	/* A window that is not used does not grow (RFC 7661). */
	if (!sample->cwnd_limited)
		return;
	if (cc_in_slow_start(cc))
		acked = cc_slow_start(cc, acked);
	if (acked)
		cc_increase(cc, &state->credit, cc->cwnd, acked);
}

/* Packets are lost: the threshold, to which the stack takes the window. */
CC_INLINE u32 NAME_ssthresh(struct NAME *state, struct cc *cc)
{
	state->prior_cwnd = cc->cwnd;
	state->credit = 0;
	return cc_fraction(cc, NAME_KEEPS, NAME_OF);
}

/* They were not lost after all: the window to go back to. */
CC_INLINE u32 NAME_undo(struct NAME *state, struct cc *cc)
{
	return max32(cc->cwnd, state->prior_cwnd);
}
