// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "westwood.h"

GLUE_INIT(westwood)
GLUE_MEASURE(westwood)
GLUE_GROW(westwood)
GLUE_REDUCE(westwood)
GLUE_EVENT(westwood)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(westwood),
	.init = (void *)westwood_start,
	.pkts_acked = (void *)westwood_acked,
	.cong_avoid = (void *)westwood_avoid,
	.cwnd_event = (void *)westwood_happened,
	.set_state = (void *)westwood_changed,
};
