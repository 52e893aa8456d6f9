/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* NACubic: "NATCP / NACubic: network-assisted TCP", HotEdge 2019, section 2.2.2: CUBIC, its window
 * capped at what NATCP's equation 1 gives, and paced at the bottleneck's bandwidth, as long as feedback
 * is valid. */
#pragma once

#include "cubic.h"
#include "equation1.h"

struct nacubic {
	struct cubic cubic;
};

CC_INLINE void nacubic_cap(struct cc *cc, const struct cc_feedback *feedback)
{
	u32 most;

	cc->pacing_rate = 0;
	if (!feedback->bandwidth)
		return;
	most = equation1_window(cc, feedback);
	cc->cwnd = min32(cc->cwnd, most);
	cc->pacing_rate = equation1_rate(cc, feedback);
}

CC_INLINE void nacubic_measure(struct nacubic *nacubic, struct cc *cc,
			       const struct cc_sample *sample)
{
	cubic_measure(&nacubic->cubic, cc, sample);
	nacubic_cap(cc, &sample->feedback);
}

CC_INLINE void nacubic_grow(struct nacubic *nacubic, struct cc *cc,
			    const struct cc_sample *sample)
{
	cubic_grow(&nacubic->cubic, cc, sample);
	nacubic_cap(cc, &sample->feedback);
}

/* As natcp_send. */
CC_INLINE u32 nacubic_send(struct nacubic *nacubic, struct cc *cc,
			   const struct cc_feedback *feedback)
{
	if (!feedback->bandwidth)
		return CC_BURST_USUAL;
	nacubic_cap(cc, feedback);
	return NATCP_BURST;
}

CC_INLINE u32 nacubic_ssthresh(struct nacubic *nacubic, struct cc *cc)
{
	return cubic_ssthresh(&nacubic->cubic, cc);
}

CC_INLINE u32 nacubic_undo(struct nacubic *nacubic, struct cc *cc)
{
	return cubic_undo(&nacubic->cubic, cc);
}

CC_INLINE void nacubic_event(struct nacubic *nacubic, struct cc *cc, enum cc_event event)
{
	cubic_event(&nacubic->cubic, cc, event);
}
