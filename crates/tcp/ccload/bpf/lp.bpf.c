// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "lp.h"

GLUE_MEASURE(lp)
GLUE_GROW(lp)
GLUE_REDUCE(lp)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(lp),
	.pkts_acked = (void *)lp_acked,
	.cong_avoid = (void *)lp_avoid,
};
