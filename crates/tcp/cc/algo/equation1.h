/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What NATCP and NACubic make of the network's feedback: "NATCP / NACubic: network-assisted TCP",
 * HotEdge 2019, section 2.2.2. */
#pragma once

#include "cc.h"

/* alpha, section 2.2.2: between the window and what is really in flight. */
#define NATCP_ALPHA 2u
/* The network counts IP packets: headers of IPv4 and of TCP with timestamps. IPv6 has 20 bytes more. */
#define NATCP_HEADERS 52u
/* Below which delayed acknowledgements stall the sender. */
#define NATCP_CWND_LEAST 2u

/* Packets go one at a time while the network says how fast: the second of a pair would wait in the
 * bottleneck's queue for as long as the first takes there. */
#define NATCP_BURST 1u

/* Of so many bytes of IP packets, those that are payload. */
CC_INLINE u64 equation1_payload(const struct cc *cc, u64 bytes)
{
	return mul_div(bytes, cc->mss, (u64)cc->mss + NATCP_HEADERS);
}

/* 1/B of it: the part of one of the flows that share the link. */
CC_INLINE u64 equation1_share(const struct cc_feedback *feedback, u64 whole)
{
	return mul_div(whole, 256, feedback->fairness ? feedback->fairness : 256);
}

/* The pacing rate: this flow's part of the bandwidth in payload, or the part or multiple of that which is
 * wanted. The paper paces each flow at the whole; then windows of several flows that open together meet in
 * the queue. */
CC_INLINE u64 equation1_rate(const struct cc *cc, const struct cc_feedback *feedback)
{
	u64 rate = equation1_share(feedback, equation1_payload(cc, feedback->bandwidth));

	if (feedback->pace)
		rate = mul_div(rate, feedback->pace, 256);
	return max64(rate, 1);
}

/* The network's, or what the connection has in its place. */
CC_INLINE u32 equation1_min_rtt(const struct cc *cc, const struct cc_feedback *feedback)
{
	if (feedback->min_rtt_us == CC_RTT_SMOOTHED)
		return cc->srtt_us;
	return feedback->min_rtt_us ? feedback->min_rtt_us : cc->min_rtt_us;
}

/* Equation 1: Cwnd = alpha x 1/B x minRTT x BL_Bw, in packets; and this flow's part of the queue that
 * is wanted. */
CC_INLINE u32 equation1_window(const struct cc *cc, const struct cc_feedback *feedback)
{
	u32 min_rtt_us = equation1_min_rtt(cc, feedback);
	u64 rate = equation1_payload(cc, feedback->bandwidth);
	u64 share = equation1_share(feedback, mul_sat(rate, NATCP_ALPHA));
	u64 queue = equation1_share(feedback, equation1_payload(cc, feedback->queue));
	u64 packets = min64(cc_bdp(cc, share, min_rtt_us), CC_CWND_MOST);

	packets += queue / max32(cc->mss, 1);
	return cc_window(cc, max64(packets, NATCP_CWND_LEAST));
}
