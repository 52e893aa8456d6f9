/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Data Center TCP: RFC 8257, with its names. The window shrinks by as much as the path marks. It needs
 * ECN on the whole path, and markers with a low threshold. */
#pragma once

#include "reno.h"

/* Section 4.2: g = 1/16. */
#define DCTCP_G_SHIFT 4
/* alpha and M are counted in such parts. */
#define DCTCP_ONE 1024u

struct dctcp {
	struct reno reno;
	u32 alpha;         /* DCTCP.Alpha, in 1024ths */
	u32 window_end;    /* DCTCP.WindowEnd */
	u32 delivered;     /* when this window began */
	u32 delivered_ce;  /* the same */
	u32 received_ce;   /* DCTCP.CE: the last packet that came in had met CE */
	u32 received_to;   /* and what was next then; the glue's */
};

CC_INLINE void dctcp_window(struct dctcp *dctcp, const struct cc *cc)
{
	dctcp->window_end = cc->snd_nxt;
	dctcp->delivered = cc->delivered;
	dctcp->delivered_ce = cc->delivered_ce;
}

/* Section 3.3: alpha is 1 at first. */
CC_INLINE void dctcp_init(struct dctcp *dctcp, struct cc *cc)
{
	dctcp->alpha = DCTCP_ONE;
	dctcp_window(dctcp, cc);
}

/* Section 3.3: at the end of each window, alpha = alpha (1 - g) + g M, where M is the part of it that
 * met CE. Counted in packets, not in bytes. */
CC_INLINE void dctcp_measure(struct dctcp *dctcp, struct cc *cc, const struct cc_sample *sample)
{
	u32 delivered = cc->delivered - dctcp->delivered;
	u32 marked = cc->delivered_ce - dctcp->delivered_ce;
	u32 alpha = min32(dctcp->alpha, DCTCP_ONE);

	if (before(cc->snd_una, dctcp->window_end) || !delivered)
		return;
	marked = min32(marked, delivered);
	/* Below 16/1024 the shift takes nothing off: then all of it, section 4.2 wants it to reach 0. */
	alpha -= alpha >> DCTCP_G_SHIFT ? alpha >> DCTCP_G_SHIFT : alpha;
	alpha += (u32)(((u64)marked * DCTCP_ONE / delivered) >> DCTCP_G_SHIFT);
	dctcp->alpha = min32(alpha, DCTCP_ONE);
	dctcp_window(dctcp, cc);
}

CC_INLINE void dctcp_grow(struct dctcp *dctcp, struct cc *cc, const struct cc_sample *sample)
{
	reno_grow(&dctcp->reno, cc, sample);
}

/* Section 3.3: cwnd = cwnd (1 - alpha / 2). */
CC_INLINE u32 dctcp_ssthresh(struct dctcp *dctcp, struct cc *cc)
{
	u32 alpha = min32(dctcp->alpha, DCTCP_ONE);

	reno_ssthresh(&dctcp->reno, cc);
	return cc_fraction(cc, 2 * DCTCP_ONE - alpha, 2 * DCTCP_ONE);
}

CC_INLINE u32 dctcp_undo(struct dctcp *dctcp, struct cc *cc)
{
	return reno_undo(&dctcp->reno, cc);
}

/* Section 3.5: loss is answered as by a conventional TCP. */
CC_INLINE void dctcp_event(struct dctcp *dctcp, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE && (cc->state == CC_RECOVERY || cc->state == CC_LOSS))
		cc->ssthresh = max32(dctcp->reno.prior_cwnd / 2, CC_SSTHRESH_LEAST);
}

/* Section 3.2, figure 1, which is the receiving stack's, and in Linux the control's: a packet came in,
 * with CE or without. Whether what was received before, and is not acknowledged yet, must be
 * acknowledged at once, with ECN-Echo as it was. */
CC_INLINE int dctcp_received(struct dctcp *dctcp, u32 ce)
{
	int changed = dctcp->received_ce != ce;

	dctcp->received_ce = ce;
	return changed;
}
