// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "assisted.h"
#include "rate.h"
#include "glue.h"
#include "natcp.h"

RATE_STATES(natcp)
GLUE_RATE_INIT(natcp)
GLUE_CONTROL(natcp)
GLUE_REDUCE(natcp)
GLUE_EVENT(natcp)
GLUE_SEND(natcp)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(natcp),
	.init = (void *)natcp_start,
	.cong_control = (void *)natcp_main,
	.cwnd_event = (void *)natcp_happened,
	.set_state = (void *)natcp_changed,
	.min_tso_segs = (void *)natcp_segments,
};
