/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the host calls of the decisions. Rust's side of it (`ffi.rs`) is generated from this. */
#pragma once

#include "reordering.h"

void midspan_reordering_came(struct holes *holes, struct lateness *lateness, struct lateness *network, u32 sequence,
			     u32 end, u32 highest, u32 stamp, u32 now_us);

/* An `enum telling`. */
u32 midspan_reordering_tell(struct holes *holes, u32 hold_us, int is_known, struct acknowledgement *ack, u32 now_us);

/* `lateness_begin`. */
void midspan_reordering_begin(struct lateness *lateness, const struct lateness *network);
