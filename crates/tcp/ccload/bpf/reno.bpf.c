// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "reno.h"

GLUE_MEND(reno)
GLUE_GROW(reno)
GLUE_REDUCE(reno)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(reno),
	.pkts_acked = (void *)reno_acked,
	.cong_avoid = (void *)reno_avoid,
};
