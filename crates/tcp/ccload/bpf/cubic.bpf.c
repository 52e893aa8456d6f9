// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "cubic.h"

GLUE_MEASURE(cubic)
GLUE_GROW(cubic)
GLUE_REDUCE(cubic)
GLUE_EVENT(cubic)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(cubic),
	.pkts_acked = (void *)cubic_acked,
	.cong_avoid = (void *)cubic_avoid,
	.cwnd_event = (void *)cubic_happened,
	.set_state = (void *)cubic_changed,
};
