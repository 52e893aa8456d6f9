/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The functions of an algorithm as the table has them, which gives each its state without a type. Those of
 * a user's own control are made by the same (the crate ccown). */
#pragma once

#include "table.h"

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

#define ALGORITHM(algo, its_kind, its_advance) NAMED(algo, #algo, its_kind, its_advance)
#define NAMED(algo, its_name, its_kind, its_advance)                                               \
	.name = its_name, .kind = its_kind, .advance = algo##_##its_advance##_of,                     \
	.ssthresh = algo##_ssthresh_of, .undo = algo##_undo_of
