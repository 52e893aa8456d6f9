/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Proportional rate reduction (RFC 9937, section 6), for algorithms of CC_RATE that at times want what
 * the stack does for those of CC_WINDOW. In packets. */
#pragma once

#include "cc.h"

struct prr {
	u32 delivered;   /* prr_delivered */
	u32 out;         /* prr_out */
	u32 recover_fs;  /* RecoverFS: packets in flight when it began; 0: no reduction goes on */
	u32 in_flight;   /* after the last acknowledgement since; at first U32_MOST */
	u32 snd_una;     /* the same */
	u32 lost;        /* the same: packets held lost */
};

CC_INLINE void prr_begin(struct prr *prr, const struct cc *cc)
{
	prr->delivered = prr->out = 0;
	prr->recover_fs = max32(max32(cc->cwnd, cc->in_flight), 1);
	/* Nothing is sent before the acknowledgement that it began with has been dealt with. What was in flight before that
	 * one is no measure: what it tells to be lost was part of it. */
	prr->in_flight = U32_MOST;
	prr->snd_una = cc->snd_una;
	prr->lost = cc->lost;
}

/* The window after an acknowledgement, on the way to `cc->ssthresh`. */
CC_INLINE u32 prr_window(struct prr *prr, const struct cc *cc, const struct cc_sample *sample)
{
	/* It advanced, and told of no further loss. */
	int safe = before(prr->snd_una, cc->snd_una) && cc->lost == prr->lost;
	u64 due;
	u32 send;

	prr->delivered = add_sat32(prr->delivered, sample->acked);
	/* What was sent since is what is in flight beyond what was left. */
	prr->out = add_sat32(prr->out, sub_sat32(sample->prior_in_flight, prr->in_flight));
	if (cc->in_flight > cc->ssthresh) {
		due = mul_div(prr->delivered, cc->ssthresh, max32(prr->recover_fs, 1));
		due += mul_sat(prr->delivered, cc->ssthresh) % max32(prr->recover_fs, 1) != 0;
		send = narrow(sub_sat(due, prr->out));
	} else {
		send = max32(sub_sat32(prr->delivered, prr->out), sample->acked);
		if (safe)
			send = add_sat32(send, 1);
		send = min32(send, sub_sat32(cc->ssthresh, cc->in_flight));
	}
	/* The first retransmission goes whatever the numbers say. */
	if (!prr->out && !send)
		send = 1;
	prr->in_flight = cc->in_flight;
	prr->snd_una = cc->snd_una;
	prr->lost = cc->lost;
	return cc_window(cc, (u64)cc->in_flight + send);
}

/* The stack is in `cc->state` now, by which it tells those that set the window themselves of the end of a
 * reduction: the window is the threshold then, but after a timeout. */
CC_INLINE void prr_changed(struct prr *prr, struct cc *cc)
{
	if (!prr->recover_fs || cc->state == CC_CWR || cc->state == CC_RECOVERY)
		return;
	prr->recover_fs = 0;
	if (cc->state != CC_LOSS)
		cc->cwnd = cc_window(cc, cc->ssthresh);
}
