/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What NATCP and NACubic make of the network's feedback: "NATCP / NACubic: network-assisted TCP",
 * HotEdge 2019, section 2.2.2. */
#pragma once

#include "cc.h"

/* alpha, section 2.2.2: between the window and what is really in flight. */
#define NATCP_ALPHA 2u
/* The network counts IP packets: headers of IPv4 and of TCP with timestamps. IPv6 has 20 bytes more. */
#define NATCP_HEADERS 52u
/* Below which there is no fast retransmission. */
#define NATCP_CWND_LEAST 4u

/* The bandwidth in payload: the pacing rate. */
CC_INLINE u64 equation1_rate(const struct cc *cc, const struct cc_feedback *feedback)
{
	u64 rate = mul_div(feedback->bandwidth, cc->mss, (u64)cc->mss + NATCP_HEADERS);

	return max64(rate, 1);
}

/* Equation 1: Cwnd = alpha x 1/B x minRTT x BL_Bw, in packets. */
CC_INLINE u32 equation1_window(const struct cc *cc, const struct cc_feedback *feedback)
{
	u32 min_rtt_us = feedback->min_rtt_us ? feedback->min_rtt_us : cc->min_rtt_us;
	u32 fairness = feedback->fairness ? feedback->fairness : 256;
	u64 rate = equation1_rate(cc, feedback);
	u64 share = mul_div(mul_sat(rate, NATCP_ALPHA), 256, fairness);

	return cc_window(cc, max64(cc_bdp(cc, share, min_rtt_us), NATCP_CWND_LEAST));
}
