/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NATCP: "NATCP / NACubic: network-assisted TCP", HotEdge 2019, section 2.2.2. The network says what the
 * bottleneck carries and how long the way is, and that is the window and the pacing rate; nothing
 * else is. While no feedback is valid it is the usual TCP, CUBIC (section 2.4). */
#pragma once

#include "cubic.h"
#include "equation1.h"
#include "prr.h"

/* How far back at least it is remembered how wide the link has been, and at most twice as far. */
#define NATCP_MEMORY_NS (5ull * NSEC_PER_SEC)

struct natcp {
	struct cubic cubic;
	struct prr prr;
	u32 assisted;    /* the last acknowledgement had feedback */
	u32 widest;      /* window that feedback asked for since `widest_since` */
	u32 widest_before; /* the same of the NATCP_MEMORY_NS before that */
	u64 widest_since_ns;
};

CC_INLINE void natcp_init(struct natcp *natcp, struct cc *cc)
{
	cc->pacing_rate = 0;
}

CC_INLINE void natcp_follow(struct natcp *natcp, struct cc *cc, const struct cc_feedback *feedback)
{
	cc->cwnd = equation1_window(cc, feedback);
	cc->pacing_rate = equation1_rate(cc, feedback);
	natcp->assisted = 1;
	if (cc->now_ns - natcp->widest_since_ns >= NATCP_MEMORY_NS) {
		natcp->widest_before = natcp->widest;
		natcp->widest = 0;
		natcp->widest_since_ns = cc->now_ns;
	}
	natcp->widest = max32(natcp->widest, cc->cwnd);
}

/* On its own from here: not on a curve from before, and with slow start up to what the link has lately carried
 * without a queue, half of the widest window (equation 1, alpha = 2). The last word may have come in an outage,
 * out of whose window of a few packets growth packet by packet would take long after the link is back. */
CC_INLINE void natcp_fall_back(struct natcp *natcp, struct cc *cc)
{
	natcp->assisted = 0;
	natcp->prr.recover_fs = 0;
	cc->ssthresh = max32(cc->cwnd, max32(natcp->widest, natcp->widest_before) / NATCP_ALPHA);
	cubic_restart(&natcp->cubic);
}

CC_INLINE void natcp_control(struct natcp *natcp, struct cc *cc, const struct cc_sample *sample)
{
	cubic_measure(&natcp->cubic, cc, sample);
	if (sample->feedback.bandwidth) {
		natcp_follow(natcp, cc, &sample->feedback);
		return;
	}
	if (natcp->assisted)
		natcp_fall_back(natcp, cc);
	if (natcp->prr.recover_fs && (cc->state == CC_CWR || cc->state == CC_RECOVERY))
		cc->cwnd = prr_window(&natcp->prr, cc, sample);
	else if (cc->state != CC_CWR && cc->state != CC_RECOVERY)
		cubic_grow(&natcp->cubic, cc, sample);
	/* As CUBIC, which is not paced. After an outage the smoothed round trip is still of it, and a rate made of
	 * that would hold the sender back for seconds. */
	cc->pacing_rate = 0;
}

/* Feedback holds from the next packet on: on a slow link the next acknowledgement is a period away. That
 * there is none any more is for the next acknowledgement to find. */
CC_INLINE u32 natcp_send(struct natcp *natcp, struct cc *cc, const struct cc_feedback *feedback)
{
	if (!feedback->bandwidth)
		return CC_BURST_USUAL;
	natcp_follow(natcp, cc, feedback);
	return NATCP_BURST;
}

/* With feedback a loss says nothing: the threshold is the window. */
CC_INLINE u32 natcp_ssthresh(struct natcp *natcp, struct cc *cc)
{
	if (natcp->assisted)
		return max32(cc->cwnd, CC_SSTHRESH_LEAST);
	prr_begin(&natcp->prr, cc);
	return cubic_ssthresh(&natcp->cubic, cc);
}

CC_INLINE u32 natcp_undo(struct natcp *natcp, struct cc *cc)
{
	natcp->prr.recover_fs = 0;
	return natcp->assisted ? cc->cwnd : cubic_undo(&natcp->cubic, cc);
}

CC_INLINE void natcp_event(struct natcp *natcp, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE)
		prr_changed(&natcp->prr, cc);
	cubic_event(&natcp->cubic, cc, event);
}
