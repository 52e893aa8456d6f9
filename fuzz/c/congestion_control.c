/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every congestion control, led through any life: its window stays within bounds, whatever it is told. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "table.c"

/* What is left of the input; zeros behind its end. */
struct input {
	const uint8_t *bytes;
	size_t size;
};

static void take(struct input *input, void *to, size_t size)
{
	size_t most = size < input->size ? size : input->size;

	memset(to, 0, size);
	if (most)
		memcpy(to, input->bytes, most);
	input->bytes += most;
	input->size -= most;
}

static u32 number(struct input *input)
{
	u32 value;

	take(input, &value, sizeof(value));
	return value;
}

static u64 long_number(struct input *input)
{
	u64 value;

	take(input, &value, sizeof(value));
	return value;
}

static u8 choice(struct input *input)
{
	u8 value;

	take(input, &value, sizeof(value));
	return value;
}

static struct cc_feedback feedback(struct input *input)
{
	return (struct cc_feedback){ .bandwidth = long_number(input),
				     .min_rtt_us = number(input),
				     .fairness = number(input),
				     .queue = number(input),
				     .pace = number(input) };
}

/* What the stack says; it vouches for what `cc.h` says it does: a segment size, a clock that does not go back. */
static void connection(struct input *input, struct cc *cc)
{
	cc->now_ns += number(input);
	cc->mss = 1 + number(input) % 65535;
	cc->cwnd_most = CC_CWND_MOST;
	cc->in_flight = number(input);
	cc->delivered = number(input);
	cc->delivered_ce = number(input);
	cc->lost = number(input);
	cc->snd_una = number(input);
	cc->snd_nxt = number(input);
	cc->srtt_us = number(input);
	cc->min_rtt_us = number(input);
}

static struct cc_sample sample(struct input *input)
{
	struct cc_sample sample = {};
	u8 flags = choice(input);

	sample.acked = number(input);
	sample.advanced = number(input);
	sample.rtt_us = number(input);
	sample.prior_in_flight = number(input);
	sample.rate_delivered = number(input);
	sample.rate_interval_us = number(input);
	sample.prior_delivered = number(input);
	sample.tx_in_flight = number(input);
	sample.tx_lost = number(input);
	sample.ece = flags & 1;
	sample.wla = flags & 2;
	sample.app_limited = flags & 4;
	sample.cwnd_limited = flags & 8;
	if (flags & 16)
		sample.feedback = feedback(input);
	return sample;
}

static void step(struct input *input, const struct algorithm *algorithm, union state *state,
		 struct cc *cc)
{
	struct cc_feedback said;
	struct cc_sample acked;
	enum cc_event event;

	connection(input, cc);
	switch (choice(input) % 6) {
	case 0:
	case 1:
		acked = sample(input);
		if (algorithm->measure)
			algorithm->measure(state, cc, &acked);
		if (algorithm->kind == CC_RATE || (cc->state != CC_CWR && cc->state != CC_RECOVERY))
			algorithm->advance(state, cc, &acked);
		break;
	case 2:
		cc->ssthresh = algorithm->ssthresh(state, cc);
		assert(cc->ssthresh >= CC_SSTHRESH_LEAST);
		break;
	case 3:
		cc->cwnd = algorithm->undo(state, cc);
		/* The stack keeps within bounds what it sets. */
		cc->cwnd = cc->cwnd < 1 ? 1 : cc->cwnd > CC_CWND_MOST ? CC_CWND_MOST : cc->cwnd;
		break;
	case 4:
		event = choice(input) % (CC_STATE + 1);
		if (event == CC_STATE)
			cc->state = choice(input) % (CC_LOSS + 1);
		if (algorithm->event)
			algorithm->event(state, cc, event);
		break;
	case 5:
		said = feedback(input);
		if (algorithm->send)
			algorithm->send(state, cc, &said);
		break;
	}
	assert(cc->cwnd >= 1 && cc->cwnd <= CC_CWND_MOST);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct input input = { bytes, size };
	union state state = {};
	struct cc cc = { .cwnd = 10, .ssthresh = CC_SSTHRESH_INFINITE };
	const struct algorithm *algorithm =
		midspan_cc_algorithm(choice(&input) % (sizeof(algorithms) / sizeof(*algorithms)));

	cc.config = midspan_cc_default_config();
	cc.config.hystart = choice(&input) % 3;
	connection(&input, &cc);
	if (algorithm->init)
		algorithm->init(&state, &cc);
	while (input.size)
		step(&input, algorithm, &state, &cc);
	return 0;
}
