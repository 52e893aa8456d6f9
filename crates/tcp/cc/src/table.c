/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The algorithms as functions and a table of them, for callers on the host. */
#include "table.h"

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

#define INIT(algo)                                                                                 \
	static void algo##_init_of(void *state, struct cc *cc) { algo##_init(state, cc); }
#define ON_SAMPLE(algo, function)                                                                  \
	static void algo##_##function##_of(void *state, struct cc *cc,                             \
					   const struct cc_sample *sample)                         \
	{                                                                                          \
		algo##_##function(state, cc, sample);                                              \
	}
#define REDUCE(algo)                                                                               \
	_Static_assert(sizeof(struct algo) <= sizeof(union state), #algo " is too large");         \
	static u32 algo##_ssthresh_of(void *state, struct cc *cc)                                  \
	{                                                                                          \
		return algo##_ssthresh(state, cc);                                                 \
	}                                                                                          \
	static u32 algo##_undo_of(void *state, struct cc *cc) { return algo##_undo(state, cc); }
#define EVENT(algo)                                                                                \
	static void algo##_event_of(void *state, struct cc *cc, enum cc_event event)               \
	{                                                                                          \
		algo##_event(state, cc, event);                                                    \
	}

#define SEND(algo)                                                                                 \
	static u32 algo##_send_of(void *state, struct cc *cc, const struct cc_feedback *feedback)  \
	{                                                                                          \
		return algo##_send(state, cc, feedback);                                           \
	}

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

#define ALGORITHM(algo, its_kind, its_advance) NAMED(algo, #algo, its_kind, its_advance)
#define NAMED(algo, its_name, its_kind, its_advance)                                               \
	.name = its_name, .kind = its_kind, .advance = algo##_##its_advance##_of,                     \
	.ssthresh = algo##_ssthresh_of, .undo = algo##_undo_of

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
