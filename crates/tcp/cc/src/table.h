/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the host calls of the algorithms: a table of them. Rust's side of it (`ffi.rs`) is generated from this. */
#pragma once

#include "cc.h"
#include "feedback.h"

/* Room for the state of any algorithm. */
#define STATE_WORDS 64

union state {
	u64 words[STATE_WORDS];
};

/* Each function gets a `union state` first. Those that an algorithm does without are null. */
struct algorithm {
	const char *name;
	u32 kind; /* enum cc_kind */
	void (*init)(void *, struct cc *);
	void (*measure)(void *, struct cc *, const struct cc_sample *);
	void (*advance)(void *, struct cc *, const struct cc_sample *); /* `grow` or `control`; never null */
	u32 (*ssthresh)(void *, struct cc *); /* never null */
	u32 (*undo)(void *, struct cc *); /* never null */
	void (*event)(void *, struct cc *, enum cc_event);
	u32 (*send)(void *, struct cc *, const struct cc_feedback *);
};

/* The algorithm in place `index` of the table, or null behind its end. */
const struct algorithm *midspan_cc_algorithm(u32 index);

/* CC_CONFIG_DEFAULT. */
struct cc_config midspan_cc_default_config(void);

/* What the map's value says at `now_ns`. */
struct cc_feedback midspan_cc_feedback_at(const struct feedback_value *value, u64 now_ns);

/* Arithmetic, for its tests. */
u64 midspan_cc_mul_div(u64 a, u64 b, u64 c);
u32 midspan_cc_cube_root(u64 a);
