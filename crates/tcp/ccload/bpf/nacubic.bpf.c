// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "assisted.h"
#include "cap.h"
#include "glue.h"
#include "nacubic.h"

GLUE_MEASURE(nacubic)
GLUE_GROW(nacubic)
GLUE_REDUCE(nacubic)
GLUE_EVENT(nacubic)
GLUE_SEND(nacubic)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(nacubic),
	.pkts_acked = (void *)nacubic_acked,
	.cong_avoid = (void *)nacubic_avoid,
	.cwnd_event = (void *)nacubic_happened,
	.set_state = (void *)nacubic_changed,
	.min_tso_segs = (void *)nacubic_segments,
};
