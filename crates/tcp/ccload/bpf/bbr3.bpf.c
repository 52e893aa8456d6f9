// SPDX-License-Identifier: GPL-2.0 OR MIT
#define LOOKS_AT_THRESHOLD 0
#include "rate.h"
#include "glue.h"
#include "bbr3.h"

RATE_STATES(bbr3)
GLUE_RATE_INIT(bbr3)
GLUE_CONTROL(bbr3)
GLUE_REDUCE(bbr3)
GLUE_EVENT(bbr3)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(bbr3),
	.init = (void *)bbr3_start,
	.cong_control = (void *)bbr3_main,
	.cwnd_event = (void *)bbr3_happened,
	.set_state = (void *)bbr3_changed,
};
