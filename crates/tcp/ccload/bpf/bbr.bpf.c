// SPDX-License-Identifier: GPL-2.0 OR MIT
#define LOOKS_AT_THRESHOLD 0
#include "rate.h"
#include "glue.h"
#include "bbr.h"

RATE_STATES(bbr)
GLUE_RATE_INIT(bbr)
GLUE_CONTROL(bbr)
GLUE_REDUCE(bbr)
GLUE_EVENT(bbr)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(bbr),
	.init = (void *)bbr_start,
	.cong_control = (void *)bbr_main,
	.cwnd_event = (void *)bbr_happened,
	.set_state = (void *)bbr_changed,
};
