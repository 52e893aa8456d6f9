// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "reno.h"

GLUE_GROW(reno)
GLUE_REDUCE(reno)
GLUE_MEND(reno)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(reno),
	.cong_avoid = (void *)reno_avoid,
	.set_state = (void *)reno_changed,
};
