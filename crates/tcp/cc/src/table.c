/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The algorithms as functions and a table of them, for callers on the host. */
#include "host.h"

#include "bbr.h"
#include "bbr3.h"
#include "cubic.h"
#include "dctcp.h"
#include "illinois.h"
#include "lp.h"
#include "me.h"
#include "nacubic.h"
#include "natcp.h"
#include "radio.h"
#include "reno.h"
#include "westwood.h"

REDUCE(reno) ON_SAMPLE(reno, grow)
REDUCE(cubic) ON_SAMPLE(cubic, grow) ON_SAMPLE(cubic, measure) EVENT(cubic)
REDUCE(westwood) ON_SAMPLE(westwood, grow) INIT(westwood) ON_SAMPLE(westwood, measure) EVENT(westwood)
REDUCE(illinois) ON_SAMPLE(illinois, grow) INIT(illinois) ON_SAMPLE(illinois, measure) EVENT(illinois)
REDUCE(lp) ON_SAMPLE(lp, grow) ON_SAMPLE(lp, measure)
REDUCE(dctcp) ON_SAMPLE(dctcp, grow) INIT(dctcp) ON_SAMPLE(dctcp, measure) EVENT(dctcp)
REDUCE(natcp) ON_SAMPLE(natcp, control) INIT(natcp) EVENT(natcp) SEND(natcp)
REDUCE(nacubic) ON_SAMPLE(nacubic, grow) ON_SAMPLE(nacubic, measure) EVENT(nacubic) SEND(nacubic)
REDUCE(me) ON_SAMPLE(me, control) INIT(me) ON_SAMPLE(me, measure) EVENT(me)
REDUCE(radio) ON_SAMPLE(radio, control) INIT(radio) EVENT(radio)
REDUCE(bbr) ON_SAMPLE(bbr, control) INIT(bbr) EVENT(bbr)
static void bbr_2016_init_of(void *state, struct cc *cc) { bbr_2016_init(state, cc); }
REDUCE(bbr3) ON_SAMPLE(bbr3, control) INIT(bbr3) EVENT(bbr3)

static const struct algorithm algorithms[] = {
	{ ALGORITHM(reno, CC_WINDOW, grow) },
	{ ALGORITHM(cubic, CC_WINDOW, grow), .measure = cubic_measure_of, .event = cubic_event_of },
	{ ALGORITHM(westwood, CC_WINDOW, grow), .init = westwood_init_of,
	  .measure = westwood_measure_of, .event = westwood_event_of },
	{ ALGORITHM(illinois, CC_WINDOW, grow), .init = illinois_init_of,
	  .measure = illinois_measure_of, .event = illinois_event_of },
	{ ALGORITHM(lp, CC_WINDOW, grow), .measure = lp_measure_of },
	{ ALGORITHM(dctcp, CC_WINDOW, grow), .init = dctcp_init_of, .measure = dctcp_measure_of,
	  .event = dctcp_event_of },
	{ ALGORITHM(natcp, CC_RATE, control), .init = natcp_init_of, .event = natcp_event_of,
	  .send = natcp_send_of },
	{ ALGORITHM(nacubic, CC_WINDOW, grow), .measure = nacubic_measure_of,
	  .event = nacubic_event_of, .send = nacubic_send_of },
	{ ALGORITHM(me, CC_RATE, control), .init = me_init_of, .measure = me_measure_of,
	  .event = me_event_of },
	{ ALGORITHM(radio, CC_RATE, control), .init = radio_init_of, .event = radio_event_of },
	{ ALGORITHM(bbr, CC_RATE, control), .init = bbr_init_of, .event = bbr_event_of },
	{ NAMED(bbr, "bbr_2016", CC_RATE, control), .init = bbr_2016_init_of,
	  .event = bbr_event_of },
	{ ALGORITHM(bbr3, CC_RATE, control), .init = bbr3_init_of, .event = bbr3_event_of },
};

const struct algorithm *midspan_cc_algorithm(u32 index)
{
	return index < sizeof(algorithms) / sizeof(*algorithms) ? &algorithms[index] : 0;
}

struct cc_config midspan_cc_default_config(void)
{
	return (struct cc_config)CC_CONFIG_DEFAULT;
}

struct cc_feedback midspan_cc_feedback_at(const struct feedback_value *value, u64 now_ns)
{
	return feedback_at(value, now_ns);
}

u64 midspan_cc_mul_div(u64 a, u64 b, u64 c)
{
	return mul_div(a, b, c);
}

u32 midspan_cc_cube_root(u64 a)
{
	return cube_root(a);
}
