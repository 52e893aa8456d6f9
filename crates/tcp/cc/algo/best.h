/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The greatest value of the last rounds, from three samples: Nichols' windowed filter, which BBR's
 * drafts use for the bandwidth. */
#pragma once

#include "fixed.h"

struct best_sample {
	u64 value;
	u32 round;
};

struct best {
	struct best_sample sample[3]; /* of the window, and the best since each */
};

CC_INLINE u64 best_value(const struct best *best)
{
	return best->sample[0].value;
}

/* A value that was seen in `round`; those of more than `window` rounds ago count no more. */
CC_INLINE void best_observe(struct best *best, u64 value, u32 round, u32 window)
{
	struct best_sample sample = { .value = value, .round = round }, *s = best->sample;
	u32 age;

	if (value >= s[0].value || round - s[2].round > window) {
		s[0] = s[1] = s[2] = sample;
		return;
	}
	if (value >= s[1].value)
		s[1] = s[2] = sample;
	else if (value >= s[2].value)
		s[2] = sample;
	age = round - s[0].round;
	if (age > window) {
		s[0] = s[1];
		s[1] = s[2];
		s[2] = sample;
		if (round - s[0].round > window) {
			s[0] = s[1];
			s[1] = s[2];
		}
	} else if (s[1].round == s[0].round && age > window / 4) {
		s[1] = s[2] = sample;
	} else if (s[2].round == s[1].round && age > window / 2) {
		s[2] = sample;
	}
}
