// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "illinois.h"

GLUE_INIT(illinois)
GLUE_MEASURE(illinois)
GLUE_GROW(illinois)
GLUE_REDUCE(illinois)
GLUE_EVENT(illinois)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(illinois),
	.init = (void *)illinois_start,
	.pkts_acked = (void *)illinois_acked,
	.cong_avoid = (void *)illinois_avoid,
	.cwnd_event = (void *)illinois_happened,
	.set_state = (void *)illinois_changed,
};
