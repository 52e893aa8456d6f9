/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is acknowledged beyond the bandwidth, as acknowledgements come in aggregates: draft-ietf-ccwg-bbr, section
 * 5.5.9. A window has to have room for it. */
#pragma once

#include "cc.h"

struct aggregation {
	u64 start_ns;
	u32 delivered; /* packets since then */
	u32 extra[2];  /* greatest in the present and in the former half of the filter */
	u32 rounds;    /* of the present half */
};

CC_INLINE void aggregation_begin(struct aggregation *aggregation, const struct cc *cc)
{
	aggregation->start_ns = cc->now_ns;
}

/* `acked` packets more, at a bandwidth of `bw` bytes per second; a half of the filter has so many rounds. */
CC_INLINE void aggregation_observe(struct aggregation *aggregation, const struct cc *cc, u64 bw,
				   u32 acked, int round_start, u32 rounds)
{
	u64 elapsed_us = sub_sat(cc->now_ns, aggregation->start_ns) / NSEC_PER_USEC;
	u64 expected = mul_div(bw, elapsed_us, USEC_PER_SEC) / max32(cc->mss, 1);
	u32 extra;

	if (round_start && ++aggregation->rounds >= rounds) {
		aggregation->rounds = 0;
		aggregation->extra[1] = aggregation->extra[0];
		aggregation->extra[0] = 0;
	}
	if (aggregation->delivered <= expected) {
		aggregation->delivered = 0;
		aggregation_begin(aggregation, cc);
		expected = 0;
	}
	aggregation->delivered = add_sat32(aggregation->delivered, acked);
	extra = narrow(sub_sat(aggregation->delivered, expected));
	aggregation->extra[0] = max32(aggregation->extra[0], min32(extra, cc->cwnd));
}

/* Packets. */
CC_INLINE u32 aggregation_extra(const struct aggregation *aggregation)
{
	return max32(aggregation->extra[0], aggregation->extra[1]);
}
