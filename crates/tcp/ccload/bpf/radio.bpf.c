// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Not paced, but in bursts of the usual length. */
#define PACED 0
#include "rate.h"
#include "glue.h"
#include "radio.h"

RATE_STATES(radio)
GLUE_RATE_INIT(radio)
GLUE_CONTROL(radio)
GLUE_REDUCE(radio)
GLUE_EVENT(radio)

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(radio),
	.init = (void *)radio_start,
	.cong_control = (void *)radio_main,
	.cwnd_event = (void *)radio_happened,
	.set_state = (void *)radio_changed,
};
