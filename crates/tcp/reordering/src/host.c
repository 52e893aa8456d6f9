/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "host.h"

void midspan_reordering_came(struct holes *holes, struct lateness *lateness, struct lateness *network, u32 sequence,
			     u32 end, u32 highest, u32 stamp, u32 now_us)
{
	holes_came(holes, lateness, network, sequence, end, highest, stamp, now_us);
}

u32 midspan_reordering_tell(struct holes *holes, u32 hold_us, int is_known, struct acknowledgement *ack, u32 now_us)
{
	return holes_tell(holes, hold_us, is_known, ack, now_us);
}

void midspan_reordering_begin(struct lateness *lateness, const struct lateness *network)
{
	lateness_begin(lateness, network);
}
